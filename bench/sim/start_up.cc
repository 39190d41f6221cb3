// How long the first message of a new connection takes on an idle path, against the line's own time and one round trip.
#include <fmt/format.h>

#include <vector>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr double kBar = 1.1;

struct Path {
  const char* name;
  std::uint64_t bps;
  Duration round_trip;
};

struct Starts {
  std::vector<double> us;
  double lost = 0;    // packets, by the network
  double resent = 0;  // packets
};

void one_start(const Path& path, std::uint32_t bytes, double loss, std::uint64_t seed, Starts& starts) {
  Setup setup;
  setup.options = driver_options(path.bps);
  setup.base_rtt = setup.options.base_rtt;
  setup.round_trip = path.round_trip;
  setup.path_known = true;
  setup.line_bps = path.bps;
  setup.seed = seed;
  Testbed bed(setup);
  auto& port = bed.network().down(1);
  if (loss > 0) port.faults().add(transport::sim::RandomLoss{loss});
  const std::uint32_t lane = bed.connect(0, 1);
  bed.on_done([&](const Done& what) { starts.us.push_back(microseconds(what.at - what.posted)); });
  bed.transfer(lane, bytes);
  bed.finish(std::chrono::seconds(100));
  starts.lost += static_cast<double>(bed.network().drops().total());
  starts.resent += static_cast<double>(bed.sender(lane).counters().retransmitted);
}

Row row_of(const Path& path, std::uint32_t bytes, double loss, const Settings& settings) {
  Starts starts;
  const std::uint32_t runs = loss > 0 ? settings.amount(8, 400, 4000) : 1;
  for (std::uint64_t i = 0; i < std::uint64_t{settings.seeds} * runs; ++i) {
    one_start(path, bytes, loss, settings.seed + i, starts);
  }
  double sum = 0;
  for (const double us : starts.us) sum += us;
  const double mean = sum / static_cast<double>(starts.us.size());
  const double line = wire_bytes(bytes, driver_options(path.bps)) * 8e6 / static_cast<double>(path.bps);
  Row row(fmt::format("{}, {} KiB", path.name, bytes / 1024), fmt::format("loss {} %", loss * 100));
  row.add("mean_us", mean).add("p99_us", quantile(starts.us, 0.99)).add("line_us", line);
  if (starts.lost > 0) row.add("resent_per_lost", starts.resent / starts.lost);
  row.add("of_line_and_round_trip", (mean - microseconds(path.round_trip)) / line);
  // Where more than the initial window is on its way, shorter messages end before the window has grown.
  const bool has_bar = path.round_trip == std::chrono::microseconds(100) && path.bps <= 10'000'000'000;
  if (loss == 0 && has_bar && bytes == 1 << 20) row.at_most(kBar);
  return row;
}

}  // namespace

Rows run_start_up(const Settings& settings) {
  const Path paths[] = {{"10 Gbit/s, 20 us", 10'000'000'000, std::chrono::microseconds(20)},
                        {"10 Gbit/s, 100 us", 10'000'000'000, std::chrono::microseconds(100)},
                        {"10 Gbit/s, 1 ms", 10'000'000'000, std::chrono::milliseconds(1)},
                        {"100 Gbit/s, 100 us", 100'000'000'000, std::chrono::microseconds(100)},
                        {"200 Mbit/s, 100 us", 200'000'000, std::chrono::microseconds(100)}};
  Rows rows;
  for (const Path& path : paths) {
    for (const std::uint32_t bytes : {64u << 10, 256u << 10, 1u << 20, 4u << 20}) {
      if (settings.length == Length::kQuick && bytes != 1u << 20) continue;
      settings.progress(fmt::format("{}, {} KiB", path.name, bytes / 1024));
      rows.push_back(row_of(path, bytes, 0, settings));
    }
  }
  for (const double loss : {0.001, 0.01, 0.03}) {
    settings.progress(fmt::format("loss {} %", loss * 100));
    rows.push_back(row_of(paths[1], 1 << 20, loss, settings));
  }
  return rows;
}

}  // namespace clustar::bench::sim
