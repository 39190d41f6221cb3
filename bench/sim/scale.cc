// What simulating a packet costs when there are many hosts: all-to-all in rounds on one switch.
#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <fstream>
#include <string>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kBytes = 64 << 10;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The process's largest so far, in MB; 0: unknown. Rows come in growing order, so it is the row's own.
double peak_memory_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1e3;
  }
  return 0;
}

struct Outcome {
  double packets = 0;  // data and control, counted once
  double hops = 0;
  double cpu = 0;   // s
  double wall = 0;  // s
  double simulated = 0;
  bool finished = true;
};

Outcome all_to_all(std::uint32_t hosts, std::uint32_t rounds, std::uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  Setup setup;
  setup.hosts = hosts;
  setup.seed = seed;
  Testbed bed(setup);
  Outcome outcome;
  const double cpu = cpu_seconds();
  const auto wall = Clock::now();
  std::vector<std::uint32_t> lanes(hosts);
  for (std::uint32_t k = 1; k <= rounds && outcome.finished; ++k) {
    for (std::uint32_t i = 0; i < hosts; ++i) lanes[i] = bed.connect(i, (i + k) % hosts);
    for (const std::uint32_t lane : lanes) bed.transfer(lane, kBytes);
    outcome.finished = bed.finish(std::chrono::milliseconds(100));
    bed.simulation().run_for(3 * kRoundTrip);  // the last acknowledgements
    for (const std::uint32_t lane : lanes) bed.disconnect(lane);
  }
  outcome.cpu = cpu_seconds() - cpu;
  outcome.wall = std::chrono::duration<double>(Clock::now() - wall).count();
  outcome.simulated = seconds(bed.now() - TimePoint{});
  for (std::uint32_t i = 0; i < hosts; ++i) {
    outcome.packets += static_cast<double>(bed.network().host(i).counters().sent_packets);
  }
  outcome.hops = static_cast<double>(bed.network().packets_sent());
  return outcome;
}

}  // namespace

Rows run_scale(const Settings& settings) {
  const bool full = settings.length == Length::kFull;
  const bool quick = settings.length == Length::kQuick;
  const struct {
    std::uint32_t hosts, rounds;
  } sizes[] = {{64, quick ? 8u : 63u}, {256, quick ? 2u : 255u}, {1024, quick ? 1u : full ? 1023u : 64u}};
  Rows rows;
  double smallest = 0;
  for (const auto& size : sizes) {
    settings.progress(fmt::format("{} hosts", size.hosts));
    Outcome sum;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) {
      const Outcome outcome = all_to_all(size.hosts, size.rounds, settings.seed + i);
      sum.packets += outcome.packets;
      sum.hops += outcome.hops;
      sum.cpu += outcome.cpu;
      sum.wall += outcome.wall;
      sum.simulated += outcome.simulated;
      sum.finished = sum.finished && outcome.finished;
    }
    const double per_hop = sum.cpu * 1e9 / sum.hops;
    if (size.hosts == 64) smallest = per_hop;
    Row row(fmt::format("{} hosts, {} rounds", size.hosts, size.rounds),
            sum.finished ? "normal" : "normal, unfinished");
    row.add("cpu_ns_per_packet", sum.cpu * 1e9 / sum.packets).add("cpu_ns_per_packet_hop", per_hop);
    if (size.hosts > 64) row.add("of_64_hosts", per_hop / smallest).at_most(1.2);
    row.add("packets", sum.packets).add("wall_s", sum.wall).add("simulated_ms", sum.simulated * 1e3);
    row.add("peak_memory_mb", peak_memory_mb());
    rows.push_back(row);
  }
  return rows;
}

}  // namespace clustar::bench::sim
