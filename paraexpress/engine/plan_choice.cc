#include "paraexpress/engine/plan_choice.h"

#include <algorithm>

namespace clustar::paraexpress {

PlanChoice::PlanChoice(const Group& group, const EngineOptions& options, const Network& network)
    : fixed_(options.plan), most_chunk_(options.chunk_bytes), network_(network), planner_(group, network) {
  for (const Plan plan : kPlans) {
    if (!makes_sense(plan, group)) continue;
    Made made{build(plan, group), {}};
    made.seat = seat_of(made.forest, options.rank);
    made_[static_cast<std::size_t>(plan)] = std::move(made);
  }
}

PlanChoice::Choice PlanChoice::choose(std::uint64_t bytes) const {
  Candidate best;
  if (fixed_) {
    best = {*fixed_, least_cost(planner_.shape(*fixed_), network_, bytes)};
  } else {
    best = planner_.best(bytes);
  }
  std::uint64_t longest = 0;
  for (const ElementRange& range : element_ranges(forest(best.plan), bytes)) longest = std::max(longest, range.size());
  const std::uint64_t chunk = (longest + best.cost.chunks - 1) / best.cost.chunks;
  return {best.plan, std::clamp(chunk, kLeastChunk, most_chunk_)};
}

}  // namespace clustar::paraexpress
