// ParaExpress's plans flow by flow, to 4,096 ranks: the forests of paraexpress/core, their messages with MLT's headers
// sharing NICs and uplinks of a leaf-spine network by max-min fairness, and what the planner takes after measuring this
// network as the engine does.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/paraexpress/plan_report.h"
#include "bench/sim/experiments.h"
#include "bench/sim/flow_bed.h"

namespace clustar::bench::sim {
namespace {

constexpr double kNearlyTheBest = 1.1;  // of the best plan's time
constexpr std::uint32_t kLeaf = 32;     // hosts, of a cluster of more than one leaf of these
// The grid: its verdict is about these.
constexpr std::uint32_t kMostRanksOfTheBar = 256;

struct Tally {
  double cells = 0, hits = 0, worst = 0;

  void add(double over_best) {
    ++cells;
    if (over_best <= kNearlyTheBest) ++hits;
    worst = std::max(worst, over_best);
  }
  Row row(const std::string& of) const {
    Row row(of, "planner");
    row.add("cells", cells).add("worst_over_best", worst);
    row.add("best_or_within_a_tenth", cells > 0 ? hits / cells : 0);
    return row;
  }
};

struct Placed {
  std::uint32_t ranks = 0;
  bool ordered = false;
  std::uint64_t seed = 1;

  px::Group group(double oversubscription) const {
    const std::uint32_t leaf = ranks <= 2 * kLeaf ? std::max(1u, ranks / 2) : kLeaf;
    auto map = paraexpress::shuffled(px::equal_regions(ranks, leaf, oversubscription), ranks, seed + ranks);
    px::Group group = px::make_group(ranks, 0, std::move(map));
    return ordered ? group : paraexpress::by_number(std::move(group));
  }
};

Row run_cell(const FlowBed& bed, const px::Planner& planner, const std::string& situation, std::uint64_t bytes) {
  const auto chosen = planner.best(bytes).plan;
  Row row(situation, px::to_string(chosen));
  double best = 0, taken = 0;
  std::vector<Figure> through;
  for (const px::Candidate& candidate : planner.candidates(bytes)) {
    const auto run = bed.run(candidate, bytes);
    if (candidate.plan == chosen) taken = run.seconds;
    best = best == 0 ? run.seconds : std::min(best, run.seconds);
    const std::string plan = px::to_string(candidate.plan);
    row.add(plan + "_us", run.seconds * 1e6);
    through.push_back({plan + "_uplink_kb", run.busiest_uplink_bytes / 1e3});
  }
  for (Figure& figure : through) row.figures.push_back(std::move(figure));
  row.add("over_best", taken / best);
  return row;
}

}  // namespace

Rows run_plans_flow(const Settings& settings) {
  Rows rows;
  Tally grid, large;
  for (std::uint32_t ranks = 2; ranks <= settings.amount(16, 4096, 4096); ranks *= 2) {
    for (const bool ordered : {true, false}) {
      std::optional<FlowBed> bed;
      for (const double oversubscription : {1.0, 2.0, 4.0, 8.0}) {
        const std::string cluster =
            fmt::format("{} ranks, {}:1, rings by {}", ranks, oversubscription, ordered ? "leaf" : "number");
        settings.progress(cluster);
        for (std::uint64_t i = 0; i < settings.seeds; ++i) {
          const px::Group group = Placed{ranks, ordered, settings.seed + i}.group(oversubscription);
          if (bed && settings.seeds == 1) {
            bed->set_regions(group.regions);
          } else {
            bed.emplace(group);
          }
          const px::Planner planner(group, bed->measured());
          for (std::uint64_t bytes = 4 << 10; bytes <= 256u << 20; bytes *= 4) {
            Row row = run_cell(*bed, planner, fmt::format("{}, {} KiB", cluster, bytes / 1024), bytes);
            (ranks <= kMostRanksOfTheBar ? grid : large).add(row.figures.back().value);
            rows.push_back(std::move(row));
          }
        }
      }
    }
  }
  rows.push_back(grid.row("2 to 256 ranks").at_least(0.95));
  if (large.cells > 0) rows.push_back(large.row("512 to 4096 ranks"));
  return rows;
}

}  // namespace clustar::bench::sim
