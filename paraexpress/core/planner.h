// Which plan: the one of the least modelled time, kept until another is better by a margin.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paraexpress/core/cost.h"
#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {

struct Candidate {
  Plan plan = Plan::kDirect;
  Cost cost{};
};

// The buffer's longest shard in so many chunks as the candidate has: bytes of a chunk, > 0.
std::uint64_t chunk_bytes(const Candidate& candidate, const Forest& forest, std::uint64_t bytes);

// The plans of a group, their shapes worked out once. Same inputs, same answers: on each rank.
class Planner {
 public:
  // What makes no sense is left out, direct never. Both are to be consistent.
  Planner(const Group& group, const Network& network);

  // All plans for this size, in kPlans' order.
  std::vector<Candidate> candidates(std::uint64_t bytes) const;
  Candidate best(std::uint64_t bytes) const;
  const Shape& shape(Plan plan) const;

 private:
  Network network_;
  std::vector<std::pair<Plan, Shape>> shapes_;
};

// Measured parameters move a little from operation to operation; plans change at a cost. So a plan stays until the best
// one takes less than (1 - margin) of its time.
class Choice {
 public:
  explicit Choice(std::optional<Plan> in_use = {}, double margin = 0.15) : margin_(margin), plan_(in_use) {}
  // The plan to use, given all candidates; the one in use need not be among them any more.
  Candidate choose(const std::vector<Candidate>& candidates);
  std::optional<Plan> plan() const { return plan_; }

 private:
  double margin_;
  std::optional<Plan> plan_{};
};

}  // namespace clustar::paraexpress
