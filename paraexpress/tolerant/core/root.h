// A rank as the root of its part of a bucket: it gathers contributions, closes rounds, and tells all ranks the result.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "paraexpress/tolerant/core/average.h"
#include "paraexpress/tolerant/core/closing.h"
#include "paraexpress/tolerant/core/wire.h"

namespace clustar::paraexpress::tolerant {

class Root {
 public:
  // `wire` outlives it.
  Root(const Terms& terms, Wire& wire, std::uint32_t bucket);

  // Another rank's contribution follows. Nothing: it may.
  std::optional<Fault> offered(Member from, const Note& note, TimePoint now);
  // The first of those that were offered and are on their way is here. `missing`: ranges of bytes.
  void came(Member from, std::span<const ElementRange> missing, TimePoint now);
  // This rank's own, which nobody writes to any more; `note` as if it came from another.
  std::optional<Fault> own(const Note& note, Block block, TimePoint now);

  struct Result {
    Note note{};
    Block block{};  // the elements; behind them the ranges that are left out
    Member counted_by = 0;
  };
  // Closes a round if it may be, and sends its result to all others. Nothing: not now.
  tl::expected<std::optional<Result>, Fault> advance(TimePoint now);
  std::optional<TimePoint> look_again() const { return closing_.look_again(); }

 private:
  struct Offer {
    std::uint64_t round = 0;
    std::uint32_t weight = 0;
    bool fresh = false;
    Block block{};
    std::vector<ElementRange> missing{};
  };
  std::optional<Fault> admit(Member from, const Note& note);
  void gather(Member from, Offer offer, TimePoint now);
  tl::expected<Result, Fault> add_up();
  std::uint64_t elements() const { return part_of(terms_.self, terms_.ranks, count_).size(); }

  const Terms terms_;
  Wire& wire_;
  const std::uint32_t bucket_;
  Closing closing_;
  std::uint64_t count_ = 0;  // 0: not known yet
  Member counted_by_ = 0;    // who said it first
  DataType type_ = DataType::kFloat32;
  std::vector<std::uint64_t> offered_;           // by rank: one more than the last round that it offered
  std::vector<std::deque<Offer>> on_their_way_;  // by rank
  std::vector<Offer> gathered_;                  // by rank, of the round that is open
};

}  // namespace clustar::paraexpress::tolerant
