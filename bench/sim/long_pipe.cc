// One stream over a long, fast path: how soon it fills the line, and what random loss costs it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint64_t kBps = 10'000'000'000;
constexpr std::uint32_t kBytes = 16u << 20;
constexpr std::uint32_t kRoundTripsBefore = 10;

struct Stream {
  double of_line = 0;  // wire bytes of messages that ended, after the first round trips
  double control_per_data = 0, resent_per_lost = 0;
};

// Enough messages are under way for three round trips.
Stream run_stream(Duration round_trip, double loss, Duration measured, std::uint64_t seed) {
  Setup setup;
  setup.options = driver_options(kBps);
  setup.base_rtt = setup.options.base_rtt;
  setup.round_trip = round_trip;
  setup.path_known = true;
  setup.line_bps = kBps;
  setup.buffer_bytes = static_cast<std::uint64_t>(static_cast<double>(kBps) / 8 * seconds(round_trip));
  setup.mark_above = ~std::uint64_t{0};  // routes between sites do not mark
  setup.seed = seed;
  Testbed bed(setup);
  if (loss > 0) bed.network().down(1).faults().add(transport::sim::RandomLoss{loss});
  const std::uint32_t lane = bed.connect(0, 1);
  const TimePoint from = TimePoint{} + kRoundTripsBefore * round_trip;
  const TimePoint end = from + measured;
  const double per_round_trip = static_cast<double>(kBps) / 8 * seconds(round_trip);
  const auto outstanding = std::max(4u, static_cast<std::uint32_t>(3 * per_round_trip / kBytes));
  double placed_from = -1, placed = 0;
  const auto look = [&] {
    placed = static_cast<double>(bed.receiver(lane).counters().placed_bytes);
    if (placed_from < 0 && bed.now() >= from) placed_from = placed;
  };
  std::uint32_t ended = 0;
  bed.on_done([&](const Done&) {
    ++ended;
    look();
    if (bed.now() < end) bed.transfer(lane, kBytes);
  });
  for (std::uint32_t i = 0; i < outstanding; ++i) bed.transfer(lane, kBytes);
  // In slices, so that what is placed is looked at on time; nothing of it depends on them.
  while (bed.now() < end && !bed.finish(std::min<Duration>(round_trip / 4, end - bed.now()))) look();
  look();
  Stream stream;
  const double wire = wire_bytes(kBytes, setup.options) / kBytes;
  stream.of_line = (placed - placed_from) * wire * 8 / (static_cast<double>(kBps) * seconds(bed.now() - from));
  const auto& counters = bed.sender(lane).counters();
  const auto data = static_cast<double>(counters.packets);
  const auto lost = static_cast<double>(bed.network().drops().total());
  stream.control_per_data = static_cast<double>(bed.network().up(1).counters().packets) / data;
  stream.resent_per_lost = lost > 0 ? static_cast<double>(counters.retransmitted) / lost : 0;
  return stream;
}

}  // namespace

Rows run_long_pipe(const Settings& settings) {
  using std::chrono::milliseconds;
  Rows rows;
  for (const Duration round_trip : {milliseconds(1), milliseconds(10), milliseconds(40), milliseconds(100)}) {
    if (settings.length == Length::kQuick && round_trip != milliseconds(10)) continue;
    for (const double loss : {0.0, 0.001, 0.01}) {
      const std::string situation = fmt::format("10 Gbit/s, {:g} ms", microseconds(round_trip) / 1e3);
      settings.progress(fmt::format("{}, loss {:g} %", situation, loss * 100));
      const Duration measured = settings.amount(1, 10, 30) * round_trip;
      const Stream stream = run_stream(round_trip, loss, measured, settings.seed);
      Row row(situation, fmt::format("loss {:g} %", loss * 100));
      row.add("control_per_data", stream.control_per_data).add("resent_per_lost", stream.resent_per_lost);
      row.add("of_line", stream.of_line);
      const bool has_bar = round_trip == milliseconds(100) && loss < 0.01;
      if (has_bar) row.at_least(loss == 0 ? 0.95 : 0.9);
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
