// How ranks join and leave between operations: what members say, what follows from it, and what each does next.
//
// All members make a round at the same place among their operations. One agreement in the membership as it is, a
// maximum as for plans, says who leaves and how many wait to join. Without those who leave the others build what they
// need to go on; that has to succeed. With those who join they try: only if it works for all, by a second agreement
// among the members alone, are these in, so no newcomer can hurt the members before.
//
//   kAgree -> kBuildWithout -> kBuildWith -> kVote -> kDone
//          -> kLend -> kOut                            (who leaves)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paraexpress/core/forest.h"

namespace clustar::paraexpress {

// A member's place.
struct Place {
  std::uint64_t epoch = 0;  // how often members were built together, or tried: never the same for two memberships
  Member rank = 0;
  std::uint32_t ranks = 1;

  bool operator==(const Place&) const = default;
};

class MembershipRound {
 public:
  enum class Step : std::uint8_t {
    kAgree,         // numbers() for a maximum among the members; then agreed()
    kLend,          // leaves; the others still need it to exchange their addresses: then lent()
    kBuildWithout,  // build place()'s group, ranks of before by survivors(); then built()
    kBuildWith,     // try place()'s group, with newcomers() behind the ranks; then built()
    kVote,          // numbers() for a maximum among the members of before(); then agreed()
    kDone,
    kOut,
    kFailed,
  };

  // `waiting`: how many wait to join, as rank 0 knows; `most`: ranks that there may be.
  MembershipRound(const Place& place, bool leaves, std::uint32_t waiting, std::uint32_t most);

  Step step() const { return step_; }
  std::vector<std::uint64_t> numbers() const;
  void agreed(std::span<const std::uint64_t> maxima);
  void lent() { step_ = Step::kOut; }
  void built(bool well);
  void failed() { step_ = Step::kFailed; }

  // The member's place in the group that it is in, or builds.
  const Place& place() const { return place_; }
  // That from which newcomers are tried.
  const Place& before() const { return before_; }
  // By their new number: their number of before.
  const std::vector<Member>& survivors() const { return survivors_; }
  std::uint32_t left() const { return left_; }
  std::uint32_t newcomers() const { return newcomers_; }
  // They were tried in vain.
  bool refused() const { return refused_; }

 private:
  void try_newcomers();

  Step step_ = Step::kAgree;
  Place place_, before_;
  const bool leaves_;
  const std::uint32_t waiting_, most_;
  std::vector<Member> survivors_{};
  std::uint32_t left_ = 0, newcomers_ = 0;
  bool built_well_ = false, refused_ = false;
};

// The place of newcomer `number`, from 0, in the group that its members build for `place`.
Place place_of_newcomer(const Place& place, std::uint32_t newcomers, std::uint32_t number);

}  // namespace clustar::paraexpress
