// A rank as one that gives to a bucket's rounds and takes their results. It keeps what did not get into a result, and
// gives it with the next round: its residual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paraexpress/tolerant/core/wire.h"

namespace clustar::paraexpress::tolerant {

// What became of a round, as one rank sees it.
struct Outcome {
  std::uint64_t round = 0;
  // Elements that this rank gave, and those of them that stay with it for the next round.
  std::uint64_t given = 0, kept = 0;
  // In the result: in the part that has fewest.
  std::uint32_t gradients = 0;
  Duration took{};  // from its start by the user, where a Group ran it
};

// What a rank still has to give of a bucket.
struct Residual {
  std::uint64_t count = 0;  // elements; 0: the bucket was never used
  DataType type = DataType::kFloat32;
  std::uint64_t rounds = 0;           // that have ended on this rank
  std::vector<std::uint32_t> owed{};  // by part: gradients that are wholly in it
  std::vector<std::byte> elements{};  // empty: zeros
};

class Giver {
 public:
  // `wire` outlives it.
  Giver(const Terms& terms, Wire& wire, std::uint32_t bucket);

  // What begin() gives to this rank's own part.
  using ToOwnPart = std::function<std::optional<Fault>(const Note&, Block)>;
  // The next round. `elements` stay valid until settle() gave its outcome, which writes the result there; they are what
  // this rank gives, unless `gives` is false: then only what is left from before.
  std::optional<Fault> begin(std::byte* elements, std::uint64_t count, DataType type, bool gives, const ToOwnPart& own);
  bool open() const { return elements_ != nullptr; }

  // Of another part's result: that it follows, and that it is here.
  std::optional<Fault> told(Member root, const Note& note);
  std::optional<Fault> came(Member root);
  // Of this rank's own part. `counted_by`: who told its root the bucket's size, which another's result may contradict.
  std::optional<Fault> own_result(Member counted_by, const Note& note, Block block);
  // The contribution has left; `missing`: ranges of bytes that do not arrive.
  void sent(Member root, std::uint64_t round, std::span<const ElementRange> missing);

  // The round that is open, once it has ended.
  std::optional<Outcome> settle();
  // The others have ended the round that this rank has not begun, or a part of it.
  bool is_late() const;
  // Gradients that it keeps and has not given again: of the part that has most.
  std::uint32_t owed() const;
  // The open round lacks this part's result, and not even its note is here.
  bool lacks(Member root) const { return open() && parts_[root].range.size() > 0 && results_[root].empty(); }
  const Residual& residual() const { return residual_; }
  // Of an earlier life of this rank, or of one that is no more, before its first round; added to what was restored
  // before. Why it cannot be, or nothing.
  std::optional<std::string> restore(Residual residual);

 private:
  struct Part {
    ElementRange range{};
    // Of the open round.
    Block given{};  // null: nothing was given
    std::uint32_t weight = 0;
    bool offered = false;  // its root was told
    bool on_its_way = false;
    std::vector<ElementRange> missing{};  // elements of the part
  };
  struct Came {
    Note note{};
    Block block{};
    bool whole = false;
    std::vector<ElementRange> left_out{};
  };
  std::optional<Fault> admit(Member from, std::uint64_t count, DataType type);
  std::optional<Fault> give(Member root, bool gives, const ToOwnPart& own);
  void keep(Part& part, Member root, const Came& result, Outcome& outcome);
  std::byte* residual_of(const Part& part) { return residual_.elements.data() + part.range.begin * element_; }
  std::size_t bytes_of(const Part& part) const { return part.range.size() * element_; }

  const Terms terms_;
  Wire& wire_;
  const std::uint32_t bucket_;
  std::size_t element_ = 0;  // bytes
  Residual residual_{};
  std::byte* elements_ = nullptr;
  std::vector<Part> parts_{};               // by root
  std::vector<std::deque<Came>> results_;   // by root, from the open or the next round on
  std::vector<std::uint64_t> next_result_;  // by root
};

}  // namespace clustar::paraexpress::tolerant
