// Random loss on the receiver's link, reliable messages: what it costs beyond what is lost.
#include <fmt/format.h>

#include "bench/sim/experiments.h"
#include "bench/sim/testbed.h"
#include "mlt/compare/recoveries.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint32_t kBytes = 1 << 20;
constexpr std::uint32_t kOutstanding = 16;

// Goodput in bit/s of `messages`, or of as many as were done within the limit.
double goodput(const mlt::Recovery* recovery, double loss, std::uint32_t messages, std::uint64_t seed) {
  constexpr Duration kLimit = std::chrono::milliseconds(500);
  Setup setup;
  setup.options.recovery = recovery;
  setup.seed = seed;
  Testbed bed(setup);
  if (loss > 0) bed.network().down(1).faults().add(transport::sim::RandomLoss{loss});
  const std::uint32_t lane = bed.connect(0, 1);
  std::uint32_t begun = 0, done = 0;
  TimePoint last{};
  const auto begin = [&] {
    if (begun == messages) return;
    ++begun;
    bed.transfer(lane, kBytes);
  };
  bed.on_done([&](const Done& what) {
    ++done;
    last = what.at;
    begin();
  });
  while (begun < std::min(messages, kOutstanding)) begin();
  bed.finish(kLimit);
  return done == 0 ? 0 : 8.0 * kBytes * done / seconds(last - TimePoint{});
}

}  // namespace

Rows run_loss(const Settings& settings) {
  const std::uint32_t messages = settings.amount(64, 512, 2048);
  const mlt::compare::GoBackN go_back_n{};
  const auto mean = [&](const mlt::Recovery* recovery, double loss) {
    double sum = 0;
    for (std::uint64_t i = 0; i < settings.seeds; ++i) sum += goodput(recovery, loss, messages, settings.seed + i);
    return sum / settings.seeds;
  };
  Rows rows;
  settings.progress("clean");
  const double clean = mean(nullptr, 0);
  rows.push_back(Row("no loss", "normal").add("goodput_gbps", clean / 1e9));
  const struct {
    std::uint32_t one_of;
    double bar;
  } losses[] = {{4096, 0.99}, {1024, 0.97}, {256, 0.95}};
  for (const auto& loss : losses) {
    const std::string situation = fmt::format("loss 1/{}", loss.one_of);
    for (const bool normal : {true, false}) {
      settings.progress(situation + (normal ? ", normal" : ", go-back-N"));
      const double bits = mean(normal ? nullptr : &go_back_n, 1.0 / loss.one_of);
      Row row(situation, normal ? "normal" : "go-back-N");
      row.add("goodput_gbps", bits / 1e9).add("of_clean", bits / clean);
      if (normal) row.at_least(loss.bar);
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace clustar::bench::sim
