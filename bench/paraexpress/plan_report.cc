#include "bench/paraexpress/plan_report.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bench/paraexpress/simulate.h"
#include "transport/base/rng.h"

namespace clustar::bench::paraexpress {
namespace {

struct Row {
  std::string name;
  const px::Group* group;
  px::Forest forest;
  px::Shape shape;
  bool candidate;
};

PlanRow row_of(const Row& row, const px::Network& network, std::uint64_t bytes, bool simulated) {
  const double size = static_cast<double>(bytes);
  PlanRow out;
  out.name = row.name;
  out.candidate = row.candidate;
  out.modelled = px::least_cost(row.shape, network, bytes);
  out.chunk_bytes = row.shape.largest_share * size / out.modelled.chunks;
  out.uplink_bytes = row.shape.uplink_share * size;
  out.nic_bytes = row.shape.nic_share * size;
  out.steps = static_cast<std::uint32_t>(2 * row.shape.up.size());
  if (!simulated) return out;
  const std::uint32_t chunks = std::min(out.modelled.chunks, kMostSimulatedChunks);
  const double all_chunks = static_cast<double>(row.forest.shards.size()) * chunks;
  out.too_large = 2 * all_chunks * row.group->ranks > kMostSimulatedMessages ||
                  all_chunks * row.group->members() > kMostSimulatedSums;
  if (out.too_large) return out;
  out.simulated_s = simulate(row.forest, *row.group, network, bytes, {chunks, 8, 0.05}).seconds;
  out.simulated_chunks = chunks;
  return out;
}

}  // namespace

px::RegionMap shuffled(px::RegionMap map, std::uint32_t ranks, std::uint64_t seed) {
  Rng rng(seed);
  for (std::uint32_t i = ranks; i > 1; --i) std::swap(map.region_of[i - 1], map.region_of[rng.below(i)]);
  return map;
}

px::Group by_number(px::Group group) {
  std::iota(group.order.begin(), group.order.end(), px::Member{0});
  return group;
}

PlanReport plan_report(const px::Group& group, const px::Network& network, const std::vector<std::uint64_t>& sizes,
                       bool simulated) {
  PlanReport report{group, network, {}};
  const px::Group numbered = by_number(group);
  std::vector<Row> rows;
  const auto add = [&](std::string name, px::Plan plan, const px::Group& of, bool candidate) {
    px::Forest forest = px::build(plan, of);
    px::Shape shape = px::shape_of(forest, of, network);
    rows.push_back({std::move(name), &of, std::move(forest), std::move(shape), candidate});
  };
  for (const px::Plan plan : px::kPlans) {
    if (px::makes_sense(plan, group)) add(px::to_string(plan), plan, group, true);
  }
  if (numbered.order != group.order) add("ring by number", px::Plan::kRing, numbered, false);
  const px::PlacementAdvisor placement(group, network);
  for (const std::uint64_t bytes : sizes) {
    SizeReport size{bytes, {}, 0, placement.hint(bytes)};
    for (const Row& row : rows) size.rows.push_back(row_of(row, network, bytes, simulated));
    for (std::size_t i = 0; i < size.rows.size(); ++i) {
      const PlanRow& one = size.rows[i];
      if (one.candidate && one.modelled.seconds < size.rows[size.chosen].modelled.seconds) size.chosen = i;
    }
    report.sizes.push_back(std::move(size));
  }
  return report;
}

}  // namespace clustar::bench::paraexpress
