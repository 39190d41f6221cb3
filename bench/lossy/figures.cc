#include "bench/lossy/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

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

// "Each job within 2x of its fair share" is meant of each job in each round: a mean over rounds would let one make up
// for another.
std::optional<double> smallest_share(const ArmSamples& arm, Block which) {
  std::optional<double> smallest;
  for (std::size_t i = 0; i < arm.block_shares.size(); ++i) {
    if (which != kAll && which != i) continue;
    for (const auto& round : arm.block_shares[i]) {
      for (const JobShare& job : round) smallest = std::min(smallest.value_or(job.share), job.share);
    }
  }
  return smallest;
}

bool has_machine_cpu(const ArmSamples& arm) { return !pick(arm.block_machine_cpu, kAll).empty(); }

// What a figure is made from.
struct Question {
  BarSpec::Kind kind;
  const ArmSamples& arm;
  const ArmSamples& other;
  double ideal_ms = 0;
  bool by_machine = false;   // CPU
  bool with_stalls = false;  // over all blocks
};

std::vector<double> times_asked(const ArmSamples& arm, const Question& asked, Block which) {
  std::vector<double> ms = pick(arm.block_ms, which);
  if (asked.with_stalls) ms.insert(ms.end(), arm.stalled_ms.begin(), arm.stalled_ms.end());
  return ms;
}

std::optional<double> figure_of(const Question& asked, Block which) {
  using Kind = BarSpec::Kind;
  const Times own = times_of(times_asked(asked.arm, asked, which));
  switch (asked.kind) {
    case Kind::kP99OverP50: return ratio(own.p99, own.p50);
    case Kind::kP99OverIdeal: return ratio(own.p99, asked.ideal_ms);
    case Kind::kP99Over: return ratio(times_of(times_asked(asked.other, asked, which)).p99, own.p99);
    case Kind::kCpuOver: {
      const auto cpu = asked.by_machine ? &ArmSamples::block_machine_cpu : &ArmSamples::block_cpu;
      return ratio(perf::median(pick(asked.arm.*cpu, which)), perf::median(pick(asked.other.*cpu, which)));
    }
    case Kind::kShare: return smallest_share(asked.arm, which);
  }
  return std::nullopt;
}

std::string text_of(const BarSpec& spec, bool by_machine, bool machine_is_ours) {
  using Kind = BarSpec::Kind;
  switch (spec.kind) {
    case Kind::kP99OverP50: return fmt::format("{}: p99 over p50", spec.arm);
    case Kind::kP99OverIdeal: return fmt::format("{}: p99 over ideal", spec.arm);
    case Kind::kP99Over: return fmt::format("{}: p99 times better than {}", spec.arm, spec.other);
    case Kind::kCpuOver:
      return fmt::format("{}: CPU per Gbit over {}, {}", spec.arm, spec.other,
                         by_machine        ? "of the whole machine"
                         : machine_is_ours ? "of the processes"
                                           : "of the processes, as others used the machine's");
    case Kind::kShare: return fmt::format("{}: smallest share of a job in a round over the fair one", spec.arm);
  }
  return "";
}

std::string void_because(const ArmSamples& arm, const ArmSamples& other, const Conditions& conditions) {
  if (conditions.backstop_drops > 0) {
    return fmt::format("{} packets were dropped behind the switch program, where no rule asks for it",
                       conditions.backstop_drops);
  }
  for (const ArmSamples* one : {&arm, &other}) {
    if (one->softnet_drops > 0) {
      return fmt::format("{} packets were dropped by the cores' input queues while {} had its turns",
                         one->softnet_drops, one->name);
    }
    if (one->super_packets == 0) continue;
    return fmt::format("{} packets of {} at the switch were several in one, which no real line carries",
                       one->super_packets, one->name);
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

Bar judge(const BarSpec& spec, const std::vector<ArmSamples>& arms, const Conditions& conditions) {
  using Kind = BarSpec::Kind;
  Bar bar{.text = text_of(spec, conditions.machine_is_ours, true),
          .limit = spec.limit,
          .at_least = spec.at_least,
          .figure = std::nullopt,
          .figure_less_bucket = std::nullopt,
          .figure_with_stalls = std::nullopt,
          .void_because = {}};
  const ArmSamples* const arm = find(arms, spec.arm);
  const ArmSamples* const other = spec.other.empty() ? arm : find(arms, spec.other);
  if (arm == nullptr || other == nullptr) return bar;
  Question asked{.kind = spec.kind,
                 .arm = *arm,
                 .other = *other,
                 .ideal_ms = conditions.ideal_ms,
                 .by_machine = conditions.machine_is_ours && has_machine_cpu(*arm) && has_machine_cpu(*other)};
  bar.text = text_of(spec, asked.by_machine, conditions.machine_is_ours);
  bar.figure = figure_of(asked, kAll);
  if (!bar.figure) return bar;
  bar.void_because = void_because(*arm, *other, conditions);
  if (spec.kind != Kind::kCpuOver && spec.kind != Kind::kShare) {
    bar.indicative = std::min(arm->all_ms().size(), other->all_ms().size()) < kRoundsForPercentiles;
  }
  if (spec.kind == Kind::kP99OverIdeal) {
    bar.figure_less_bucket = ratio(*bar.figure * conditions.ideal_ms, conditions.ideal_ms - conditions.bucket_ms);
  }
  if (arm->stalled_ms.size() + other->stalled_ms.size() > 0) {
    asked.with_stalls = true;
    bar.figure_with_stalls = figure_of(asked, kAll);
    asked.with_stalls = false;
  }
  std::optional<double> low, high;
  for (Block block = 0; block < std::min(arm->block_ms.size(), other->block_ms.size()); ++block) {
    const auto one = figure_of(asked, block);
    if (!one) continue;
    low = std::min(low.value_or(*one), *one);
    high = std::max(high.value_or(*one), *one);
  }
  bar.low = low.value_or(*bar.figure);
  bar.high = high.value_or(*bar.figure);
  return bar;
}

std::vector<int> plan_blocks(int rounds, int blocks) {
  const int count = std::clamp(rounds, 1, blocks);
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i) sizes.push_back(rounds * (i + 1) / count - rounds * i / count);
  return sizes;
}

std::vector<std::size_t> turn_order(std::size_t arms, std::size_t block, std::uint64_t seed) {
  std::vector<std::size_t> order(arms);
  if (arms == 0) return order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed + block / arms);
  // Not std::shuffle, which each library does in its own way.
  for (std::size_t i = arms - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(block % arms), order.end());
  return order;
}

}  // namespace clustar::bench::lossy
