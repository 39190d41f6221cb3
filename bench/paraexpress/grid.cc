#include "bench/paraexpress/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/paraexpress/plan_report.h"
#include "bench/paraexpress/simulate.h"

namespace clustar::bench::paraexpress {
namespace {

struct Built {
  px::Plan plan;
  px::Forest forest;
  px::Shape shape;
};

GridCell judge(const std::vector<Built>& plans, const px::Group& group, const px::Network& network,
               std::uint64_t bytes) {
  GridCell cell;
  cell.bytes = bytes;
  double least_modelled = 0;
  for (const Built& one : plans) {
    const px::Cost modelled = px::least_cost(one.shape, network, bytes);
    const double simulated =
        simulate(one.forest, group, network, bytes, {std::min(modelled.chunks, kMostSimulatedChunks), 8, 0.05}).seconds;
    if (&one == plans.data() || modelled.seconds < least_modelled) {
      least_modelled = modelled.seconds;
      cell.chosen = one.plan;
      cell.chosen_s = simulated;
      cell.modelled_s = modelled.seconds;
    }
    if (&one == plans.data() || simulated < cell.best_s) {
      cell.best = one.plan;
      cell.best_s = simulated;
    }
  }
  return cell;
}

}  // namespace

std::vector<GridCell> grid(const GridOptions& options, const std::function<void(const std::string&)>& each) {
  std::vector<GridCell> cells;
  for (const std::uint32_t ranks : options.ranks) {
    for (const double oversubscription : options.oversubscription) {
      // Few ranks are in two regions all the same.
      const std::uint32_t size = std::min(options.region_size, std::max(1u, ranks / 2));
      const px::RegionMap map = shuffled(px::equal_regions(ranks, size, oversubscription), ranks, options.seed + ranks);
      for (const bool ordered : {true, false}) {
        px::Group group = px::make_group(ranks, 0, map);
        if (!ordered) group = by_number(std::move(group));
        std::vector<Built> plans;
        for (const px::Plan plan : px::kPlans) {
          if (!px::makes_sense(plan, group)) continue;
          px::Forest forest = px::build(plan, group);
          px::Shape shape = px::shape_of(forest, group, options.network);
          plans.push_back({plan, std::move(forest), std::move(shape)});
        }
        for (const std::uint64_t bytes : options.bytes) {
          GridCell cell = judge(plans, group, options.network, bytes);
          cell.ranks = ranks;
          cell.oversubscription = oversubscription;
          cell.ordered = ordered;
          cells.push_back(cell);
        }
      }
      each(fmt::format("{} ranks at {}:1: {:.1f} % of {} cells so far", ranks, oversubscription, 100 * hit_rate(cells),
                       cells.size()));
    }
  }
  return cells;
}

std::size_t hits(const std::vector<GridCell>& cells) {
  return static_cast<std::size_t>(
      std::count_if(cells.begin(), cells.end(), [](const GridCell& cell) { return cell.hit(); }));
}

double hit_rate(const std::vector<GridCell>& cells) {
  return cells.empty() ? 0 : static_cast<double>(hits(cells)) / static_cast<double>(cells.size());
}

}  // namespace clustar::bench::paraexpress
