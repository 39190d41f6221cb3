#include "paraexpress/engine/plan_choice.h"

#include <algorithm>

namespace clustar::paraexpress {

PlanChoice::PlanChoice(const Group& group, const EngineOptions& options, const Network& network)
    : fixed_(options.plan), most_chunk_(options.chunk_bytes) {
  for (const Plan plan : kPlans) {
    // Direct is what is measured by, and what all-gathers go by.
    const bool wanted = !fixed_ || *fixed_ == plan || plan == Plan::kDirect;
    if (!wanted || !makes_sense(plan, group)) continue;
    Made made{build(plan, group), {}};
    made.seat = seat_of(made.forest, options.rank);
    made_[static_cast<std::size_t>(plan)] = std::move(made);
  }
  if (!fixed_) planner_.emplace(group, network);
}

PlanChoice::Choice PlanChoice::choose(std::uint64_t bytes) const {
  if (!planner_) return {kPlans[index(*fixed_)], most_chunk_};
  const Candidate best = planner_->best(bytes);
  std::uint64_t longest = 0;
  for (const ElementRange& range : element_ranges(forest(best.plan), bytes)) longest = std::max(longest, range.size());
  const std::uint64_t chunk = (longest + best.cost.chunks - 1) / best.cost.chunks;
  return {best.plan, std::clamp(chunk, kLeastChunk, most_chunk_)};
}

}  // namespace clustar::paraexpress
