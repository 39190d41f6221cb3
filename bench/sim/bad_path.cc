// One of eight paths is bad, in both directions: what the slowest messages see of it.
#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kBytes = 1 << 20;
constexpr int kPath = 3;

void message_times(const transport::sim::Fault* fault, std::uint32_t messages, std::uint64_t seed,
                   std::vector<double>& times) {
  Setup setup;
  setup.seed = seed;
  Testbed bed(setup);
  if (fault != nullptr) {
    bed.network().down(0).faults().add(*fault, {.path = kPath});
    bed.network().down(1).faults().add(*fault, {.path = kPath});
  }
  const std::uint32_t lane = bed.connect(0, 1);
  std::uint32_t begun = 1;
  bed.on_done([&](const Done& what) {
    times.push_back(microseconds(what.at - what.posted));
    if (begun++ < messages) bed.transfer(lane, kBytes);
  });
  bed.transfer(lane, kBytes);
  bed.finish(std::chrono::seconds(10));
}

}  // namespace

Rows run_bad_path(const Settings& settings) {
  const std::uint32_t messages = settings.amount(1000, 3000, 20000);
  const transport::sim::Fault lossy = transport::sim::RandomLoss{0.05};
  const transport::sim::Fault dead = transport::sim::LinkDown{};
  const struct {
    const char* name;
    const transport::sim::Fault* fault;
    double bar;
  } situations[] = {{"8 good paths", nullptr, 0}, {"1 of 8 loses 5 %", &lossy, 1.15}, {"1 of 8 is dead", &dead, 0}};
  Rows rows;
  double healthy = 0;
  for (const auto& situation : situations) {
    settings.progress(situation.name);
    std::vector<double> times;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) {
      message_times(situation.fault, messages, settings.seed + i, times);
    }
    const double p99 = quantile(times, 0.99);
    if (situation.fault == nullptr) healthy = p99;
    Row row(situation.name, "normal");
    row.add("messages", static_cast<double>(times.size())).add("p50_us", quantile(times, 0.5)).add("p99_us", p99);
    if (situation.fault != nullptr) row.add("p99_of_healthy", p99 / healthy);
    if (situation.bar > 0) row.at_most(situation.bar);
    row.add("max_us", quantile(times, 1));
    rows.push_back(row);
  }
  return rows;
}

}  // namespace clustar::bench::sim
