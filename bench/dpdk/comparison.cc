#include "bench/dpdk/comparison.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/dpdk/bare_loop.h"
#include "bench/dpdk/mlt_loop.h"
#include "bench/dpdk/wire.h"
#include "transport/io/dpdk/eal.h"

namespace clustar::bench::dpdk {
namespace {

constexpr std::uint32_t kMemoryMb = 512;
constexpr std::uint64_t kSeed = 1;

using Figure = double (Sample::*)() const;

std::vector<double> figures(const std::vector<Sample>& samples, Figure figure) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const Sample& sample : samples) values.push_back((sample.*figure)());
  return values;
}

perf::RatioEstimate ratio(const Comparison& comparison, Figure figure) {
  return perf::paired_ratio(figures(comparison.mlt, figure), figures(comparison.bare, figure), kSeed);
}

nlohmann::json spread_of(const std::vector<Sample>& samples, Figure figure) {
  const perf::Spread spread = perf::spread(figures(samples, figure));
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

nlohmann::json loop_json(const std::vector<Sample>& samples) {
  return {{"packets_per_second", spread_of(samples, &Sample::packets_per_second)},
          {"goodput_gbit_s", spread_of(samples, &Sample::gigabits_per_second)}};
}

nlohmann::json ratio_json(const perf::RatioEstimate& ratio) {
  return {{"ratio", ratio.ratio}, {"low", ratio.low}, {"high", ratio.high}};
}

std::string row(const char* name, const std::vector<Sample>& samples) {
  const auto packets = perf::spread(figures(samples, &Sample::packets_per_second));
  const auto goodput = perf::spread(figures(samples, &Sample::gigabits_per_second));
  return fmt::format("{:<5} {:>8.3f} M/s [{:.3f} .. {:.3f}]   {:>7.2f} Gbit/s [{:.2f} .. {:.2f}]\n", name,
                     packets.median / 1e6, packets.min / 1e6, packets.max / 1e6, goodput.median, goodput.min,
                     goodput.max);
}

// Of all cores that this process may use.
double others(const perf::Usage& before, double seconds) {
  const perf::Party here{before, perf::usage_now(), perf::allowed_cores()};
  const auto other = perf::other_cpu({here}, before.machine, seconds);
  return other ? other->used : 0;
}

}  // namespace

Result<Comparison> compare(const Options& options) {
  const auto wires = make_wires(options.wire);
  if (!wires) return tl::unexpected(wires.error());
  if (const auto begun = transport::io::dpdk::start_eal({.memory_mb = kMemoryMb}); !begun) {
    return tl::unexpected(begun.error());
  }
  auto bare = BareLoop::open(wires->bare);
  if (!bare) return tl::unexpected(bare.error());
  auto mlt = MltLoop::open(wires->mlt);
  if (!mlt) return tl::unexpected(mlt.error());
  const auto time = std::chrono::nanoseconds(static_cast<std::int64_t>(options.seconds * 1e9));
  Comparison comparison;
  comparison.options = options;
  const auto usage = perf::usage_now();
  const auto begin = std::chrono::steady_clock::now();
  const auto measure = [&](auto& loop, std::vector<Sample>& into, bool counts) -> Result<void> {
    const auto sample = loop.run(time);
    if (!sample) return tl::unexpected(sample.error());
    if (counts) into.push_back(*sample);
    return {};
  };
  // The first round warms both. Who begins a round changes, so that neither always comes after the other.
  for (int round = 0; round <= options.rounds; ++round) {
    const bool bare_first = round % 2 == 0;
    for (const bool is_bare : {bare_first, !bare_first}) {
      const auto done =
          is_bare ? measure(**bare, comparison.bare, round > 0) : measure(**mlt, comparison.mlt, round > 0);
      if (!done) return tl::unexpected(done.error());
    }
  }
  comparison.other_cpu = others(usage, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  comparison.goodput = ratio(comparison, &Sample::gigabits_per_second);
  comparison.packets = ratio(comparison, &Sample::packets_per_second);
  return comparison;
}

nlohmann::json to_json(const Comparison& comparison) {
  return {{"wire", comparison.options.wire},
          {"rounds", comparison.options.rounds},
          {"seconds", comparison.options.seconds},
          {"bare", loop_json(comparison.bare)},
          {"mlt", loop_json(comparison.mlt)},
          {"goodput_ratio", ratio_json(comparison.goodput)},
          {"packets_ratio", ratio_json(comparison.packets)},
          {"other_cpu_cores", comparison.other_cpu}};
}

std::string to_table(const Comparison& comparison) {
  const auto line = [](const char* name, const perf::RatioEstimate& ratio) {
    return fmt::format("mlt / bare, {}: {:.3f} (95 %: {:.3f} .. {:.3f})\n", name, ratio.ratio, ratio.low, ratio.high);
  };
  return fmt::format("{}, {} rounds of {} s each, in turns; median [least .. most]\n", comparison.options.wire,
                     comparison.options.rounds, comparison.options.seconds) +
         row("bare", comparison.bare) + row("mlt", comparison.mlt) + line("goodput", comparison.goodput) +
         line("packets", comparison.packets) +
         fmt::format("others used {:.2f} cores meanwhile\n", comparison.other_cpu);
}

}  // namespace clustar::bench::dpdk
