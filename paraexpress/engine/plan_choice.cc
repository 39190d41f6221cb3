#include "paraexpress/engine/plan_choice.h"

#include <algorithm>
#include <utility>

namespace clustar::paraexpress {

PlanChoice::PlanChoice(const Group& group, const EngineOptions& options, const Network& network, InUse in_use)
    : fixed_(options.plan),
      ring_from_(options.ring_from),
      most_chunk_(options.chunk_bytes),
      group_(group),
      network_(network),
      planner_(group, network),
      in_use_(std::move(in_use)) {
  for (const Plan plan : kPlans) {
    if (!makes_sense(plan, group)) continue;
    Made made{build(plan, group), {}};
    made.seat = seat_of(made.forest, options.rank);
    made_[static_cast<std::size_t>(plan)] = std::move(made);
  }
}

PlanChoice::Choice PlanChoice::choose(std::uint64_t bytes, Collective collective) const {
  if (fixed_ && goes_by(collective, *fixed_, forest(*fixed_))) {
    return cut({*fixed_, least_cost(planner_.shape(*fixed_), network_, bytes)}, forest(*fixed_), bytes);
  }
  // The two ways cost the same, so the order of the plans is the all-reduce's.
  std::vector<Candidate> candidates = planner_.candidates(bytes);
  std::erase_if(candidates, [&](const Candidate& one) { return !goes_by(collective, one.plan, forest(one.plan)); });
  const auto is_ring = [](const Candidate& one) { return one.plan == Plan::kRing; };
  if (ring_from_ && bytes >= *ring_from_ && std::ranges::any_of(candidates, is_ring)) {
    std::erase_if(candidates, [&](const Candidate& one) { return !is_ring(one); });
  }
  const auto used = in_use_.find({collective, bytes});
  paraexpress::Choice kept(used == in_use_.end() ? std::nullopt : std::optional(used->second));
  const Candidate best = kept.choose(candidates);
  return cut(best, forest(best.plan), bytes);
}

PlanChoice::Broadcast PlanChoice::broadcast(std::uint64_t bytes, Member root) const {
  std::optional<Candidate> best;
  Broadcast chosen;
  for (const Plan plan : kPlans) {
    if (!made_[static_cast<std::size_t>(plan)] || !goes_by(Collective::kBroadcast, plan, forest(plan))) continue;
    Forest tree = tree_of(forest(plan), root);
    const Candidate one{plan, least_cost(shape_of(tree, group_, network_), network_, bytes)};
    if (best && fixed_ != plan && (fixed_ == best->plan || one.cost.seconds >= best->cost.seconds)) continue;
    best = one;
    chosen.forest = std::move(tree);
  }
  chosen.chunk_bytes = cut(*best, chosen.forest, bytes).chunk_bytes;
  return chosen;
}

PlanChoice::Choice PlanChoice::cut(const Candidate& candidate, const Forest& forest, std::uint64_t bytes) const {
  return {candidate.plan, std::clamp(chunk_bytes(candidate, forest, bytes), kLeastChunk, most_chunk_)};
}

double PlanChoice::gain_over_ring(std::uint64_t bytes) const {
  for (const Candidate& candidate : planner_.candidates(bytes)) {
    if (candidate.plan == Plan::kRing) return candidate.cost.seconds / planner_.best(bytes).cost.seconds;
  }
  return 1;
}

}  // namespace clustar::paraexpress
