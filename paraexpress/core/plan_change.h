// A plan changes at one operation number on all ranks, or not at all: two ranks that aggregate one operation by two
// plans would wait for each other for good.
//
// Rank 0 leads. It proposes a plan from operation `at` on; each rank accepts unless it has begun that operation.
// Accepted by all it is a change, otherwise it is dropped; and a rank that has accepted does not begin `at` before it
// knows which.
//
//   leader              ranks
//     | --- Proposal ---> |   accepts: operations before `at` go on, `at` waits for the verdict
//     | <--- Answer ----- |   or refuses, having begun `at`
//     | ---- Verdict ---> |   all accepted: the plan holds from `at` on; one refused: nothing changes
//
// One object per rank; messages are carried by others, in order between two ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paraexpress/core/forest.h"
#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {

struct Proposal {
  std::uint32_t number = 0;  // of the proposal
  Plan plan = Plan::kDirect;
  std::uint64_t at = 0;  // the first operation by it
};
struct Answer {
  std::uint32_t number = 0;
  bool accepted = false;
};
struct Verdict {
  std::uint32_t number = 0;
  bool holds = false;
};

// How many operations ahead of a rank's next one a change may be. Until it is reached no other can be agreed on, so a
// number that makes no sense must not hold them up for good.
inline constexpr std::uint64_t kMostAhead = 65536;

class PlanChange {
 public:
  PlanChange(std::uint32_t ranks, Member rank, Plan first);

  // Begins the next operation, from 0, by this plan. Nothing: the verdict of a proposal has to come first.
  std::optional<Plan> begin();
  std::uint64_t next_operation() const { return next_; }

  // Rank 0. `ahead`: how many operations from its own next one. Nothing while a proposal is open, for the plan that
  // holds already, and beyond kMostAhead. To be sent to all other ranks.
  std::optional<Proposal> propose(Plan plan, std::uint64_t ahead);
  // Rank 0. The verdict, once known, is to be sent to all other ranks. What is no answer to the open proposal is
  // ignored.
  std::optional<Verdict> on_answer(Member from, const Answer& answer);
  // The others, who refuse what is out of range. Messages are taken as they come off the wire.
  Answer on_proposal(const Proposal& proposal);
  void on_verdict(const Verdict& verdict);

  bool is_consistent() const;

 private:
  void take(const Verdict& verdict);

  const std::uint32_t ranks_;
  const Member rank_;
  std::uint64_t next_ = 0;
  Plan plan_;                        // of operations before what comes_ says
  std::optional<Proposal> comes_{};  // agreed, not reached yet
  std::optional<Proposal> open_{};   // accepted here, the verdict is not known
  // The leader's.
  std::uint32_t last_number_ = 0;
  std::vector<bool> answered_{};
  std::uint32_t missing_ = 0;
  bool refused_ = false;
};

}  // namespace clustar::paraexpress
