#include "bench/coflow/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "bench/coflow/page_parts.h"

namespace clustar::bench::coflow {
namespace {

constexpr std::size_t kMostLoads = 100;
constexpr double kLeastLoad = 0.001, kMostLoad = 100;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// Each once, and maxmin before the others.
std::vector<std::string> specs_of(const std::vector<std::string>& asked) {
  std::vector<std::string> specs{kBaseline};
  const auto add = [&](std::string_view spec) {
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.emplace_back(spec);
  };
  for (const std::string& spec : asked) {
    if (spec != "all") add(spec);
    if (spec != "all") continue;
    for (const auto& info : clustar::coflow::policies()) add(info.name);
  }
  if (specs.size() == 1) add("match");
  return specs;
}

Result<void> check(const SweepOptions& options, const std::vector<std::string>& specs) {
  if (options.seeds < 1 || options.seeds > kMostSeeds) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--seeds: {} cannot be; allowed: 1 to {}", options.seeds, kMostSeeds));
  }
  for (const std::string& spec : specs) {
    const auto policy = clustar::coflow::find_policy(spec);
    if (!policy) return fail(policy.error().code, "--policy: " + policy.error().message);
    if (policy->needs_deadlines) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--policy {}: generated coflows have no deadlines; allowed: policies without them", spec));
    }
  }
  return {};
}

SweepRun run_of(const Summary& summary, double load, std::uint64_t seed) {
  return {.load = load,
          .seed = seed,
          .policy = summary.policy,
          .average_s = summary.average_s,
          .p95_s = summary.p95_s,
          .p99_s = summary.p99_s,
          .slowdown = summary.slowdown_mean,
          .cpu_s = summary.cpu_s,
          .refill_ms = summary.refill_ms};
}

std::string duration_text(double seconds) {
  return seconds < 120 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

// How far it is; as long as a load takes much longer than another, roughly.
class Watch {
 public:
  explicit Watch(std::size_t total) : total_(total) {}
  void step() { ++done_; }
  std::string where() const { return fmt::format("[{}/{}]", std::min(done_ + 1, total_), total_); }
  std::string left() const {
    if (done_ == 0) return "";
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    const double each = passed.count() / static_cast<double>(done_);
    return fmt::format("; about {} left", duration_text(each * static_cast<double>(total_ - done_)));
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::size_t total_;
  std::size_t done_ = 0;
};

std::string gains_text(const Comparison& comparison) {
  const Summary& fair = comparison.policies.front();
  std::string words;
  for (std::size_t i = 1; i < comparison.policies.size(); ++i) {
    const Summary& one = comparison.policies[i];
    words += fmt::format("{} {} {:.2f}", i == 1 ? "" : ",", one.policy,
                         one.average_s > 0 ? fair.average_s / one.average_s : 1);
  }
  return words;
}

}  // namespace

Result<std::vector<double>> parse_loads(const std::string& text) {
  std::vector<double> loads;
  for (const std::string& word : split(text)) {
    double load = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), load);
    const bool number = error == std::errc() && end == word.data() + word.size();
    if (!number || !(load >= kLeastLoad && load <= kMostLoad)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--loads: '{}' cannot be; allowed: numbers from {} to {} with commas between them, as "
                              "0.3,0.9,3",
                              word, kLeastLoad, kMostLoad));
    }
    if (std::find(loads.begin(), loads.end(), load) != loads.end()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("--loads: {} is there twice; allowed: each once", word));
    }
    loads.push_back(load);
  }
  if (loads.size() <= kMostLoads) return loads;
  return fail(ErrorCode::kInvalidArgument, fmt::format("--loads: {}; allowed: up to {}", loads.size(), kMostLoads));
}

Result<GeneratorOptions> parse_sweep_generator(const std::string& text) {
  for (const std::string& pair : split(text)) {
    const std::string key = pair.substr(0, pair.find('='));
    if (key != "load" && key != "seed") continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--generate: '{}' contradicts --{}s, which a sweep goes through; allowed: ports, coflows",
                            pair, key));
  }
  auto options = parse_generator(text);
  if (!options) return fail(options.error().code, "--generate: " + options.error().message);
  return options;
}

Result<Sweep> sweep(const SweepOptions& options, const Say& say) {
  CompareOptions compared;
  compared.policies = specs_of(options.policies);
  compared.port_gbps = options.port_gbps;
  compared.refill = options.refill;
  if (const auto ok = check(options, compared.policies); !ok) return tl::unexpected(ok.error());
  Sweep result{.ports = options.generator.ports,
               .coflows = options.generator.coflows,
               .seeds = options.seeds,
               .port_gbps = options.port_gbps,
               .loads = options.loads,
               .policies = {compared.policies.begin() + 1, compared.policies.end()}};
  Watch watch(options.loads.size() * options.seeds);
  // Loads change faster: after one seed, what is left can be told.
  for (std::uint64_t seed = 1; seed <= options.seeds; ++seed) {
    for (const double load : options.loads) {
      Source source;
      source.generator = options.generator;
      source.generator->load = load;
      source.generator->seed = seed;
      const std::string which = fmt::format("load {}, seed {}", load, seed);
      const auto comparison = compare(source, compared, [&](const std::string& line, bool) {
        say(fmt::format("{} {}: {}{}", watch.where(), which, line, watch.left()), false);
      });
      if (!comparison) return fail(comparison.error().code, fmt::format("{}: {}", which, comparison.error().message));
      for (const Summary& one : comparison->policies) result.runs.push_back(run_of(one, load, seed));
      const std::string where = watch.where();
      watch.step();
      say(fmt::format("{} {}: maxmin/{}{}", where, which, gains_text(*comparison), watch.left()), true);
    }
  }
  return result;
}

Ratio ratio_of(const Sweep& sweep, const std::string& policy, const Figure& figure, std::optional<double> load) {
  Ratio all;
  all.least = std::numeric_limits<double>::infinity();
  for (const SweepRun& fair : sweep.runs) {
    if (fair.policy != kBaseline || (load && fair.load != *load)) continue;
    const auto own = std::find_if(sweep.runs.begin(), sweep.runs.end(), [&](const SweepRun& one) {
      return one.policy == policy && one.load == fair.load && one.seed == fair.seed;
    });
    if (own == sweep.runs.end() || (*own).*figure.of <= 0) continue;
    const double ratio = fair.*figure.of / (*own).*figure.of;
    ++all.runs;
    all.mean += ratio;
    all.least = std::min(all.least, ratio);
    all.most = std::max(all.most, ratio);
    all.worse += ratio < kWorseBelow ? 1 : 0;
  }
  if (all.runs == 0) return {};
  all.mean /= static_cast<double>(all.runs);
  return all;
}

}  // namespace clustar::bench::coflow
