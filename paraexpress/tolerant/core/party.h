// One rank of a tolerant group: gives to its buckets' rounds, and is the root of a part of each. Pure: time is given,
// and a Wire carries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paraexpress/tolerant/core/giver.h"
#include "paraexpress/tolerant/core/pace.h"
#include "paraexpress/tolerant/core/root.h"
#include "paraexpress/tolerant/core/terms.h"
#include "paraexpress/tolerant/core/wire.h"

namespace clustar::paraexpress::tolerant {

// Thread rule: one thread at a time. `wire` outlives it.
class Party {
 public:
  Party(const Terms& terms, Wire& wire);

  // As Giver::begin().
  std::optional<Fault> begin(std::uint32_t bucket, std::byte* elements, std::uint64_t count, DataType type, bool gives,
                             TimePoint now);
  std::optional<Fault> heard(Member from, const Note& note, TimePoint now);
  // What was received or sent, in the order of Wire's calls. `missing`: ranges of bytes, of contributions only.
  std::optional<Fault> came(Member from, const Ticket& ticket, std::span<const ElementRange> missing, TimePoint now);
  void sent(Member to, const Ticket& ticket, std::span<const ElementRange> missing);

  // Closes what may close. Call it after each of the above, and at next().
  std::optional<Fault> advance(TimePoint now);
  // When advance() may have something to do though nothing was heard.
  std::optional<TimePoint> next() const;
  std::optional<Outcome> settle(std::uint32_t bucket) { return seat(bucket).giver.settle(); }
  // Before each step, a round of each bucket.
  bool should_compute();
  Residual residual(std::uint32_t bucket) const {
    return seats_[bucket] ? seats_[bucket]->giver.residual() : Residual{};
  }
  // The bucket's open round waits for a part whose root this is.
  bool lacks(std::uint32_t bucket, Member root) const { return seats_[bucket] && seats_[bucket]->giver.lacks(root); }
  std::optional<std::string> restore(std::uint32_t bucket, Residual residual) {
    return seat(bucket).giver.restore(std::move(residual));
  }

 private:
  struct Seat {
    Seat(const Terms& terms, Wire& wire, std::uint32_t bucket)
        : giver(terms, wire, bucket), root(terms, wire, bucket) {}
    Giver giver;
    Root root;
  };
  Seat& seat(std::uint32_t bucket);

  const Terms terms_;
  Wire& wire_;
  std::vector<std::unique_ptr<Seat>> seats_;  // by bucket; null: not used yet
  Pace pace_{};
};

}  // namespace clustar::paraexpress::tolerant
