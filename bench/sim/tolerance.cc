// What tolerance is worth where the network loses at random or in short bursts: message times at p = 0 and p = 1 %.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench/sim/experiments.h"
#include "bench/sim/micro_bursts.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kBytes = 1 << 20;
constexpr std::uint32_t kPpm = 10'000;
constexpr Duration kTrip = std::chrono::microseconds(50);
constexpr std::uint32_t kBufferBytes = 500'000;
constexpr std::uint32_t kMarks = 37'500;
constexpr std::uint32_t kInCollective = 64;  // messages: the ledger of each starts over

struct Situation {
  const char* name;
  double loss = 0;
  Burst burst{};  // of no length: none
};

struct Line {
  const char* name;
  std::uint64_t bps;
};

struct Times {
  std::vector<double> us;
  double bytes = 0;
  double missing = 0;
  double resent = 0;  // packets
  double packets = 0;
};

mlt::Options options_of(const Line& line) {
  mlt::Options options = driver_options(line.bps);
  options.base_rtt = kTrip;
  return options;
}

// Messages one after the other.
void message_times(const Line& line, const Situation& situation, std::uint32_t ppm, std::uint32_t messages,
                   std::uint64_t seed, Duration gap, Times& times) {
  Setup setup;
  setup.options = options_of(line);
  setup.base_rtt = kTrip;
  setup.round_trip = kTrip;
  setup.line_bps = line.bps;
  setup.buffer_bytes = kBufferBytes;
  setup.mark_above = kMarks;
  setup.seed = seed;
  Testbed bed(setup);
  auto& faults = bed.network().down(1).faults();
  if (situation.loss > 0) faults.add(transport::sim::RandomLoss{situation.loss});
  if (situation.burst.length > Duration::zero()) BurstSchedule({situation.burst}, gap).add_to(faults);
  const std::uint32_t lane = bed.connect(0, 1);
  std::uint32_t begun = 0;
  const auto begin = [&] {
    mlt::SendTerms terms = ppm > 0 ? ring_terms(ppm, std::uint64_t{kInCollective} * kBytes) : mlt::SendTerms{};
    terms.collective = begun / kInCollective;
    ++begun;
    bed.transfer(lane, kBytes, terms);
  };
  bed.on_done([&](const Done& what) {
    times.us.push_back(microseconds(what.at - what.posted));
    times.bytes += what.bytes;
    times.missing += what.missing;
    if (begun < messages) begin();
  });
  begin();
  bed.finish(std::chrono::seconds(1000));
  const auto& counters = bed.sender(lane).counters();
  times.resent += static_cast<double>(counters.retransmitted);
  times.packets += static_cast<double>(counters.packets);
}

void add_rows(const Line& line, const Situation& situation, const Settings& settings, Rows& rows) {
  const bool fast = line.bps > 1'000'000'000;
  const std::uint32_t messages = fast ? settings.amount(64, 2048, 16384) : settings.amount(16, 512, 4096);
  Times reliable;
  for (const std::uint32_t ppm : {0u, kPpm}) {
    const char* arm = ppm > 0 ? "p = 1 %" : "p = 0";
    settings.progress(fmt::format("{}, {}, {}", line.name, situation.name, arm));
    Times times;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) {
      // A burst in every fourth message or so.
      const Duration gap = fast ? std::chrono::milliseconds(4) : std::chrono::milliseconds(200);
      message_times(line, situation, ppm, messages, settings.seed + i, gap, times);
    }
    Row row(fmt::format("{}, {}", line.name, situation.name), arm);
    const double p50 = quantile(times.us, 0.5), p99 = quantile(times.us, 0.99);
    double sum = 0;
    for (const double us : times.us) sum += us;
    const double mean = sum / static_cast<double>(times.us.size());
    row.add("mean_us", mean).add("p50_us", p50).add("p99_us", p99).add("missing_fraction", times.missing / times.bytes);
    row.add("resent_fraction", times.resent / times.packets);
    if (ppm == 0) {
      reliable = std::move(times);
    } else {
      double reliable_sum = 0;
      for (const double us : reliable.us) reliable_sum += us;
      row.add("p0_p99_over_p99", quantile(reliable.us, 0.99) / p99);
      row.add("p0_p50_over_p50", quantile(reliable.us, 0.5) / p50);
      row.add("p0_mean_over_mean", reliable_sum / static_cast<double>(reliable.us.size()) / mean).at_least(0.995);
    }
    rows.push_back(row);
  }
}

}  // namespace

Rows run_tolerance(const Settings& settings) {
  const Line lines[] = {{"10 Gbit/s", 10'000'000'000}, {"200 Mbit/s", 200'000'000}};
  const Situation situations[] = {{.name = "0.1 % loss", .loss = 0.001},
                                  {.name = "1 % loss", .loss = 0.01},
                                  {.name = "2 % loss", .loss = 0.02},
                                  {.name = "5 % loss", .loss = 0.05},
                                  {.name = "bursts, 75 % for 5 RTT", .burst = {0.75, 5 * kTrip}},
                                  {.name = "bursts, 75 % for 50 RTT", .burst = {0.75, 50 * kTrip}}};
  Rows rows;
  for (const Line& line : lines) {
    for (const Situation& situation : situations) {
      if (settings.length == Length::kQuick && situation.loss != 0.02) continue;
      add_rows(line, situation, settings, rows);
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
