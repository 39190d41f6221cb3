// From the rack to another continent: how long all-reduces take on paths of any length, with and without tolerance of
// loss, with and without parity, against a sender that fills the line and learns of each loss a round trip later.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "bench/sim/collectives.h"
#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint64_t kBps = 200'000'000;
constexpr std::uint64_t kBufferBytes = 1'000'000;  // 40 ms of the line

struct Loss {
  const char* name;
  double random = 0;
  bool bursts = false;  // 75 % for 2 ms, every 200 ms or so
};

struct Case {
  Duration round_trip{};
  Loss loss;
  std::uint32_t bytes = 0;  // of a message
  std::uint32_t ranks = 0;
  bool ring = true;
  std::uint32_t ppm = 0;
  bool parity = false;
};

Setup setup_of(const Case& one, std::uint64_t seed) {
  Setup setup;
  setup.hosts = one.ranks;
  setup.options = driver_options(kBps);
  setup.options.parity = one.parity;
  setup.round_trip = one.round_trip;
  setup.base_rtt = setup.options.base_rtt;
  setup.path_known = true;
  setup.line_bps = kBps;
  setup.buffer_bytes = kBufferBytes;
  setup.mark_above = ~std::uint64_t{0};  // routes between sites do not mark
  setup.seed = seed;
  return setup;
}

struct Outcome {
  std::vector<double> ms;
  double packets = 0, control = 0, resent = 0, lost = 0, missing = 0, bytes = 0;
  double parity = 0, rebuilt = 0;
};

void run_case(const Case& one, std::uint32_t rounds, std::uint64_t seed, Outcome& outcome) {
  Testbed bed(setup_of(one, seed));
  for (std::uint32_t host = 0; host < one.ranks; ++host) {
    auto& faults = bed.network().down(host).faults();
    if (one.loss.random > 0) faults.add(transport::sim::RandomLoss{one.loss.random});
    if (one.loss.bursts) {
      const auto at = TimePoint{} + std::chrono::milliseconds(20 + 37 * host);
      faults.add(transport::sim::MicroBursts{
          0.75, {{at, at + std::chrono::milliseconds(2)}}, std::chrono::milliseconds(211 + 2 * host)});
    }
  }
  AllReduces collectives(bed, {one.ranks, one.bytes, one.ring, one.ppm});
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const auto took = collectives.run(std::chrono::seconds(600));
    if (!took) {
      outcome.ms.push_back(600e3);
      break;
    }
    // The first opens the windows.
    if (round > 0 || rounds == 1) outcome.ms.push_back(microseconds(*took) / 1e3);
  }
  const auto sums = collectives.sums();
  outcome.packets += sums.packets;
  outcome.resent += sums.resent;
  outcome.parity += sums.parity;
  outcome.rebuilt += sums.rebuilt;
  outcome.missing += sums.missing_bytes;
  outcome.bytes += sums.bytes;
  outcome.control += sums.control;
  outcome.lost += static_cast<double>(bed.network().drops().total());
}

std::string name_of(const Case& one) {
  return fmt::format("{:g} ms, {}, {} KiB, {} of {}", microseconds(one.round_trip) / 1e3, one.loss.name,
                     one.bytes / 1024, one.ring ? "ring" : "all-to-all", one.ranks);
}

std::string name_of(std::uint32_t ppm, bool parity) {
  if (ppm == 0 && parity) return "parity";
  return fmt::format("p = {:g} %{}", ppm / 1e4, parity ? ", parity" : "");
}

// As many rounds as some minutes pay for.
std::uint32_t rounds_of(const Settings& settings, const Case& one) {
  constexpr double kPacketBytes = 1'400, kPackets = 400'000;
  const double messages = one.ranks * 2.0 * (one.ranks - 1);  // of either pattern
  const double per_round = messages * std::max(1.0, one.bytes / kPacketBytes);
  const auto affordable = static_cast<std::uint32_t>(kPackets / per_round);
  return std::clamp(affordable, 2u, settings.amount(2, 11, 31));
}

// Reliable, the same with parity, and with tolerance of loss.
void run_arms(const Settings& settings, Case one, Rows& rows) {
  const std::uint32_t rounds = rounds_of(settings, one);
  struct Arm {
    std::uint32_t ppm;
    bool parity;
  };
  double reliable = 0;
  for (const Arm arm : {Arm{0, false}, Arm{0, true}, Arm{10'000, false}, Arm{10'000, true}, Arm{50'000, false}}) {
    if (arm.ppm > settings.amount(10'000, 10'000, 50'000)) continue;
    one.ppm = arm.ppm;
    one.parity = arm.parity;
    settings.progress(name_of(one));
    Outcome outcome;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) run_case(one, rounds, settings.seed + i, outcome);
    double sum = 0;
    for (const double ms : outcome.ms) sum += ms;
    const double mean = sum / static_cast<double>(outcome.ms.size());
    const double ideal = ideal_all_reduce_ms({one.ranks, one.bytes, one.ring, one.ppm}, one.round_trip, kBps,
                                             one.loss.random, settings.seed);
    Row row(name_of(one), name_of(one.ppm, arm.parity));
    row.add("mean_ms", mean).add("p99_ms", quantile(outcome.ms, 0.99));
    row.add("of_ideal", mean / ideal);
    row.add("control_per_data", outcome.control / outcome.packets);
    row.add("resent_per_lost", outcome.lost > 0 ? outcome.resent / outcome.lost : outcome.resent);
    row.add("missing_fraction", outcome.missing / outcome.bytes);
    if (arm.parity) row.add("parity_per_data", outcome.parity / (outcome.packets - outcome.parity));
    if (arm.parity) row.add("rebuilt_per_lost", outcome.lost > 0 ? outcome.rebuilt / outcome.lost : outcome.rebuilt);
    if (one.ppm == 0 && !arm.parity) {
      reliable = mean;
    } else {
      row.add(arm.parity ? "without_over_this" : "p0_over_this", reliable / mean);
    }
    rows.push_back(row);
  }
}

}  // namespace

Rows run_paths(const Settings& settings) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  const Duration trips[] = {microseconds(20), milliseconds(1), milliseconds(10), milliseconds(40), milliseconds(100)};
  const Loss losses[] = {{"clean"}, {"0.01 %", 1e-4}, {"0.1 %", 1e-3}, {"1 %", 1e-2}, {"bursts", 0, true}};
  Rows rows;
  for (const bool ring : {true, false}) {
    for (const std::uint32_t ranks : {4u, 8u, 16u}) {
      if (ranks > settings.amount(4, 8, 16)) continue;
      for (const std::uint32_t bytes : {64u << 10, 1u << 20, 16u << 20}) {
        if (bytes > settings.amount(1 << 20, 1 << 20, 16 << 20)) continue;
        if (bytes > 1u << 20 && ranks > 8) continue;  // an hour's run, of 256 MiB for each all-reduce
        for (const Duration trip : trips) {
          for (const Loss& loss : losses) {
            if (settings.length == Length::kQuick && (loss.random != 1e-3 || ranks > 4)) continue;
            run_arms(settings, {trip, loss, bytes, ranks, ring}, rows);
          }
        }
      }
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
