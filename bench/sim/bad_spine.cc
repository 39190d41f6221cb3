// The lossy suite's `bad-path` without its kernel: 200 Mbit/s, four spines, packets through one lose 5 %. Connections
// are new in each block, so how many of their paths meet the bad spine is drawn again.
#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kBytes = 1 << 20;
constexpr std::uint64_t kLineBps = 200'000'000;
constexpr std::uint32_t kPairs = 20;  // blocks
constexpr std::uint32_t kUncounted = 4;

struct Arm {
  const char* name;
  std::uint8_t paths;
  double loss;  // at the bad spine
};

void message_times(const Arm& arm, std::uint32_t messages, std::uint64_t seed, std::vector<double>& times) {
  Setup setup;
  setup.hosts = 2 * kPairs;
  setup.options = driver_options(kLineBps, arm.paths);
  setup.base_rtt = setup.options.base_rtt;
  setup.buffer_bytes = 125'000;
  setup.mark_above = setup.buffer_bytes * 3 / 10;
  setup.seed = seed;
  setup.leaf_spine = true;
  setup.spines = 4;
  setup.line_bps = kLineBps;
  setup.from_host_bps = 50 * kLineBps;  // a host's own queue is memory
  setup.round_trip = std::chrono::microseconds(100);
  Testbed bed(setup);
  for (const std::uint32_t leaf : {0u, 1u}) {
    bed.network().spine_to_leaf(0, leaf).faults().add(transport::sim::RandomLoss{arm.loss});
  }
  // Pairs one after the other: which spines their paths take differs.
  std::uint32_t done = 0;
  bed.on_done([&](const Done& what) {
    if (done++ >= kUncounted) times.push_back(sim::microseconds(what.at - what.posted));
    if (done < kUncounted + messages) bed.transfer(what.lane, kBytes);
  });
  const auto offset = static_cast<std::uint32_t>(seed % kPairs);
  for (std::uint32_t pair = 0; pair < kPairs; ++pair) {
    done = 0;
    bed.transfer(bed.connect(pair, kPairs + (pair + offset) % kPairs), kBytes);
    bed.finish(std::chrono::seconds(100));
  }
}

}  // namespace

Rows run_bad_spine(const Settings& settings) {
  const std::uint32_t messages = settings.amount(2, 50, 500);
  const Arm arms[] = {
      {"8 paths, no spine is bad", 8, 0}, {"1 path, no spine is bad", 1, 0}, {"8 paths", 8, 0.05}, {"1 path", 1, 0.05}};
  Rows rows;
  for (const Arm& arm : arms) {
    settings.progress(arm.name);
    std::vector<double> times;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) message_times(arm, messages, settings.seed + i, times);
    Row row("1 of 4 spines loses 5 %", arm.name);
    row.add("messages", static_cast<double>(times.size()));
    for (const auto& [name, q] : {std::pair("p50_us", 0.5), std::pair("p90_us", 0.9), std::pair("p99_us", 0.99),
                                  std::pair("p999_us", 0.999), std::pair("max_us", 1.0)}) {
      row.add(name, quantile(times, q));
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace clustar::bench::sim
