// ParaExpress's plans packet by packet: two leaves, their uplinks as wide as the hosts' NICs or narrower, ranks placed
// at random. How long each plan takes, what it sends through the busiest uplink, and whether the planner, which knows
// the network by measuring it as the engine does, takes the best.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/sim/experiments.h"
#include "bench/sim/planned.h"
#include "bench/sim/testbed.h"
#include "paraexpress/core/fit.h"
#include "paraexpress/core/planner.h"
#include "paraexpress/engine/engine.h"
#include "transport/base/rng.h"

namespace clustar::bench::sim {
namespace {

namespace px = clustar::paraexpress;

constexpr std::uint64_t kLineBps = 10'000'000'000;
constexpr Duration kTrip = std::chrono::microseconds(20);
constexpr Duration kLimit = std::chrono::seconds(100);
constexpr double kNearly = 1.1;  // of the best plan's time
const std::uint64_t kMostChunk = px::EngineOptions{}.chunk_bytes;

struct Cluster {
  std::uint32_t ranks = 0;
  std::uint32_t oversubscription = 1;
  bool ordered = false;  // rings and trees go by leaf; otherwise by the ranks' numbers
};

// Two leaves of the same size, the ranks dealt to their hosts at random.
class Bed {
 public:
  Bed(const Cluster& cluster, std::uint64_t seed)
      : spines_(std::max(1u, cluster.ranks / 2 / cluster.oversubscription)), bed_(setup(cluster, spines_, seed)) {
    std::vector<std::uint32_t> host_of(cluster.ranks);
    std::iota(host_of.begin(), host_of.end(), 0u);
    Rng rng(seed);
    for (std::uint32_t i = cluster.ranks; i > 1; --i) std::swap(host_of[i - 1], host_of[rng.below(i)]);
    px::RegionMap map;
    for (const char* name : {"leaf0", "leaf1"}) {
      map.regions.push_back({name, cluster.ranks / 2, static_cast<double>(cluster.ranks) / 2 / spines_});
    }
    for (const std::uint32_t host : host_of) map.region_of.push_back(host / (cluster.ranks / 2));
    group_ = px::make_group(cluster.ranks, 0, std::move(map));
    if (!cluster.ordered) std::iota(group_.order.begin(), group_.order.end(), px::Member{0});
    planned_.emplace(bed_, std::move(host_of));
  }

  const px::Group& group() const { return group_; }
  // Seconds of the last of `rounds`, the first of which open connections and windows; nothing: it did not end.
  std::optional<double> seconds(const px::Forest& forest, std::uint64_t bytes, std::uint64_t chunk, int rounds) {
    std::optional<Duration> took;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t before = uplink_bytes();
      took = planned_->all_reduce(forest, bytes, chunk, kLimit);
      if (!took) return std::nullopt;
      through_uplink_ = uplink_bytes() - before;
    }
    return sim::seconds(*took);
  }
  // Both directions of the leaves' uplinks, in the last round; on the wire, with control packets.
  std::uint64_t through_uplink() const { return through_uplink_; }

 private:
  static Setup setup(const Cluster& cluster, std::uint32_t spines, std::uint64_t seed) {
    Setup setup;
    setup.hosts = cluster.ranks;
    setup.options = driver_options(kLineBps);
    setup.line_bps = kLineBps;
    setup.round_trip = kTrip;
    setup.base_rtt = setup.options.base_rtt;
    setup.path_known = true;
    setup.leaf_spine = true;
    setup.spines = spines;
    setup.seed = seed;
    return setup;
  }
  std::uint64_t uplink_bytes() {
    std::uint64_t most = 0;
    for (const std::uint32_t leaf : {0u, 1u}) {
      std::uint64_t out = 0;
      for (std::uint32_t spine = 0; spine < spines_; ++spine) {
        out += bed_.network().leaf_to_spine(leaf, spine).counters().bytes;
      }
      most = std::max(most, out);
    }
    return most;
  }

  const std::uint32_t spines_;
  Testbed bed_;
  px::Group group_;
  std::optional<Planned> planned_;
  std::uint64_t through_uplink_ = 0;
};

// As paraexpress/engine measures before its first operation; regions and how narrow their uplinks are is given.
std::optional<px::Network> probe(Bed& bed) {
  px::Network network;
  network.most_chunk_bytes = kMostChunk;
  bool whole = true;
  const px::Measured measured = px::measured_by([&](px::Plan plan, std::uint64_t bytes) {
    const auto took = bed.seconds(px::build(plan, bed.group()), bytes, kMostChunk, 3);
    whole = whole && took.has_value();
    return took.value_or(0);
  });
  if (!whole) return std::nullopt;
  return px::fit(bed.group(), measured, network);
}

struct Hits {
  double cells = 0, hits = 0, excess = 0;
};

// One size on one cluster, by each plan. A plan that does not end counts as taking the limit.
void run_cell(const Cluster& cluster, std::uint64_t bytes, std::uint64_t seed, Rows& rows, Hits& hits) {
  const std::string situation =
      fmt::format("{} ranks, {}:1, {} KiB, rings by {}", cluster.ranks, cluster.oversubscription, bytes / 1024,
                  cluster.ordered ? "leaf" : "number");
  Bed probing(cluster, seed);
  const auto network = probe(probing);
  if (!network) return;
  const px::Planner planner(probing.group(), *network);
  const px::Candidate best_modelled = planner.best(bytes);
  double chosen = 0, best = 1e9;
  for (const px::Candidate& candidate : planner.candidates(bytes)) {
    Bed bed(cluster, seed);  // of its own, so that no plan finds windows that another one opened
    const px::Forest forest = px::build(candidate.plan, bed.group());
    const std::uint64_t chunk = std::clamp(px::chunk_bytes(candidate, forest, bytes), px::kLeastChunk, kMostChunk);
    const double took = bed.seconds(forest, bytes, chunk, 2).value_or(sim::seconds(kLimit));
    if (candidate.plan == best_modelled.plan) chosen = took;
    best = std::min(best, took);
    Row row(situation, px::to_string(candidate.plan));
    row.add("us", took * 1e6).add("modelled_us", candidate.cost.seconds * 1e6);
    row.add("uplink_kb", static_cast<double>(bed.through_uplink()) / 1e3);
    row.add("chosen", candidate.plan == best_modelled.plan ? 1 : 0);
    rows.push_back(row);
  }
  ++hits.cells;
  if (chosen <= kNearly * best) ++hits.hits;
  hits.excess = std::max(hits.excess, chosen / best);
}

}  // namespace

Rows run_plans(const Settings& settings) {
  Rows rows;
  Hits hits;
  for (const std::uint32_t ranks : {4u, 8u, 16u, 32u, 64u}) {
    if (ranks > settings.amount(4, 32, 64)) continue;
    for (const std::uint32_t oversubscription : {1u, 2u, 4u, 8u}) {
      if (oversubscription > ranks / 2 || (oversubscription > 2 && settings.length == Length::kQuick)) continue;
      for (const std::uint64_t bytes : {4u << 10, 64u << 10, 1u << 20, 16u << 20}) {
        if (bytes > settings.amount(64 << 10, 1 << 20, 16 << 20)) continue;
        for (const bool ordered : {true, false}) {
          const Cluster cluster{ranks, oversubscription, ordered};
          settings.progress(fmt::format("{} ranks, {}:1, {} KiB", ranks, oversubscription, bytes / 1024));
          for (std::uint64_t i = 0; i < settings.seeds; ++i) run_cell(cluster, bytes, settings.seed + i, rows, hits);
        }
      }
    }
  }
  Row row("all of the above", "planner");
  row.add("cells", hits.cells).add("worst_over_best", hits.excess);
  row.add("best_or_within_a_tenth", hits.cells > 0 ? hits.hits / hits.cells : 0).at_least(0.95);
  rows.push_back(row);
  return rows;
}

}  // namespace clustar::bench::sim
