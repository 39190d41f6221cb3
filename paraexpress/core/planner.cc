#include "paraexpress/core/planner.h"

#include <algorithm>

namespace clustar::paraexpress {
namespace {

// The first of the least: a tie is broken alike on all ranks.
Candidate least(const std::vector<Candidate>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& a, const Candidate& b) { return a.cost.seconds < b.cost.seconds; });
}

}  // namespace

std::uint64_t chunk_bytes(const Candidate& candidate, const Forest& forest, std::uint64_t bytes) {
  std::uint64_t longest = 1;
  for (const ElementRange& range : element_ranges(forest, bytes)) longest = std::max(longest, range.size());
  return (longest + candidate.cost.chunks - 1) / candidate.cost.chunks;
}

Planner::Planner(const Group& group, const Network& network) : network_(network) {
  for (const Plan plan : kPlans) {
    if (makes_sense(plan, group)) shapes_.emplace_back(plan, shape_of(build(plan, group), group, network));
  }
}

std::vector<Candidate> Planner::candidates(std::uint64_t bytes) const {
  std::vector<Candidate> all;
  for (const auto& [plan, shape] : shapes_) all.push_back({plan, least_cost(shape, network_, bytes)});
  return all;
}

Candidate Planner::best(std::uint64_t bytes) const { return least(candidates(bytes)); }

const Shape& Planner::shape(Plan plan) const {
  return std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& one) { return one.first == plan; })->second;
}

Candidate Choice::choose(const std::vector<Candidate>& candidates) {
  const Candidate best = least(candidates);
  const auto current =
      std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& one) { return one.plan == plan_; });
  if (current != candidates.end() && best.cost.seconds >= (1 - margin_) * current->cost.seconds) return *current;
  plan_ = best.plan;
  return best;
}

}  // namespace clustar::paraexpress
