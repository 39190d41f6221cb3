#include "bench/lossy/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/perf/statistics.h"

namespace clustar::bench::lossy {
namespace {

using Block = std::size_t;
constexpr Block kAll = static_cast<Block>(-1);

std::vector<double> pick(const std::vector<std::vector<double>>& blocks, Block which) {
  if (which != kAll) return which < blocks.size() ? blocks[which] : std::vector<double>();
  std::vector<double> all;
  for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
  return all;
}

std::optional<double> ratio(double a, double b) { return b > 0 ? std::optional(a / b) : std::nullopt; }

double smallest_share(const ArmSamples& arm, Block which) {
  std::vector<double> sums;
  std::size_t blocks = 0;
  for (std::size_t i = 0; i < arm.block_shares.size(); ++i) {
    if (which != kAll && which != i) continue;
    const auto& jobs = arm.block_shares[i];
    if (jobs.empty()) continue;
    sums.resize(std::max(sums.size(), jobs.size()));
    for (std::size_t job = 0; job < jobs.size(); ++job) sums[job] += jobs[job].share;
    ++blocks;
  }
  return blocks == 0 ? 0 : *std::min_element(sums.begin(), sums.end()) / static_cast<double>(blocks);
}

std::optional<double> figure_of(const BarSpec& spec, const ArmSamples& arm, const ArmSamples* other, double ideal,
                                Block which) {
  using Kind = BarSpec::Kind;
  const Times own = times_of(pick(arm.block_ms, which));
  switch (spec.kind) {
    case Kind::kP99OverP50: return ratio(own.p99, own.p50);
    case Kind::kP99OverIdeal: return ratio(own.p99, ideal);
    case Kind::kP99Over: return ratio(times_of(pick(other->block_ms, which)).p99, own.p99);
    case Kind::kCpuOver:
      return ratio(perf::median(pick(arm.block_cpu, which)), perf::median(pick(other->block_cpu, which)));
    case Kind::kShare: return smallest_share(arm, which);
  }
  return std::nullopt;
}

std::string text_of(const BarSpec& spec) {
  using Kind = BarSpec::Kind;
  switch (spec.kind) {
    case Kind::kP99OverP50: return fmt::format("{}: p99 over p50", spec.arm);
    case Kind::kP99OverIdeal: return fmt::format("{}: p99 over ideal", spec.arm);
    case Kind::kP99Over: return fmt::format("{}: p99 times better than {}", spec.arm, spec.other);
    case Kind::kCpuOver: return fmt::format("{}: CPU per Gbit over {}", spec.arm, spec.other);
    case Kind::kShare: return fmt::format("{}: smaller share over the fair one", spec.arm);
  }
  return "";
}

const ArmSamples* find(const std::vector<ArmSamples>& arms, const std::string& name) {
  const auto found = std::find_if(arms.begin(), arms.end(), [&](const ArmSamples& arm) { return arm.name == name; });
  return found == arms.end() || found->all_ms().empty() ? nullptr : &*found;
}

}  // namespace

Times times_of(std::vector<double> ms) {
  Times times;
  if (ms.empty()) return times;
  times.mean = std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size());
  times.p50 = perf::quantile(ms, 0.5);
  times.p90 = perf::quantile(ms, 0.9);
  times.p99 = perf::quantile(ms, 0.99);
  times.p999 = perf::quantile(ms, 0.999);
  times.min = *std::min_element(ms.begin(), ms.end());
  times.max = *std::max_element(ms.begin(), ms.end());
  return times;
}

std::vector<std::pair<double, double>> distribution(std::vector<double> ms, std::size_t points) {
  std::sort(ms.begin(), ms.end());
  std::vector<std::pair<double, double>> curve;
  const std::size_t count = std::min(points, ms.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = count == 1 ? 0 : i * (ms.size() - 1) / (count - 1);
    curve.emplace_back(ms[at], static_cast<double>(at + 1) / static_cast<double>(ms.size()));
  }
  return curve;
}

std::vector<double> ArmSamples::all_ms() const { return pick(block_ms, kAll); }

Bar judge(const BarSpec& spec, const std::vector<ArmSamples>& arms, double ideal_ms) {
  Bar bar{.text = text_of(spec), .limit = spec.limit, .at_least = spec.at_least, .figure = std::nullopt};
  const ArmSamples* const arm = find(arms, spec.arm);
  const ArmSamples* const other = spec.other.empty() ? arm : find(arms, spec.other);
  if (arm == nullptr || other == nullptr) return bar;
  bar.figure = figure_of(spec, *arm, other, ideal_ms, kAll);
  if (!bar.figure) return bar;
  bar.low = bar.high = *bar.figure;
  for (Block block = 0; block < std::min(arm->block_ms.size(), other->block_ms.size()); ++block) {
    const auto one = figure_of(spec, *arm, other, ideal_ms, block);
    if (!one) continue;
    bar.low = block == 0 ? *one : std::min(bar.low, *one);
    bar.high = block == 0 ? *one : std::max(bar.high, *one);
  }
  return bar;
}

std::vector<int> plan_blocks(int rounds, int blocks) {
  const int count = std::clamp(rounds, 1, blocks);
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i) sizes.push_back(rounds * (i + 1) / count - rounds * i / count);
  return sizes;
}

}  // namespace clustar::bench::lossy
