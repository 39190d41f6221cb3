// Generated traces over loads and seeds: how many times better than max-min fair sharing policies are, and whether they
// ever are worse.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "bench/coflow/compare.h"

namespace clustar::bench::coflow {

inline constexpr std::size_t kMostSeeds = 1000;

struct SweepOptions {
  GeneratorOptions generator{};  // but for its load and seed
  std::vector<double> loads{};
  std::size_t seeds = 5;                // 1 to so many
  std::vector<std::string> policies{};  // as CompareOptions'; maxmin is always among them
  double port_gbps = 1;
  std::optional<Duration> refill{};  // as CompareOptions'
};
// Load and seed are the sweep's, and may not be named. Errors name what is allowed.
Result<GeneratorOptions> parse_sweep_generator(const std::string& text);
// "0.3,0.5,3", each once.
Result<std::vector<double>> parse_loads(const std::string& text);

struct SweepRun {
  double load = 0;
  std::uint64_t seed = 0;
  std::string policy{};
  double average_s = 0, p95_s = 0, p99_s = 0, slowdown = 0, cpu_s = 0, refill_ms = 0;
};

struct Sweep {
  std::size_t ports = 0, coflows = 0, seeds = 0;
  double port_gbps = 0;
  std::vector<double> loads{};
  std::vector<std::string> policies{};  // without maxmin
  std::vector<SweepRun> runs{};         // by seed, then by load, then maxmin before the policies
};

// Errors: kInvalidArgument for what was asked for.
Result<Sweep> sweep(const SweepOptions& options, const Say& say);

// What runs are compared by.
struct Figure {
  const char* name;
  const char* key;  // in JSON, with _ratio behind it
  double SweepRun::*of;
};
inline constexpr std::array<Figure, 4> kFigures{{{"average", "average_cct", &SweepRun::average_s},
                                                 {"p95", "p95_cct", &SweepRun::p95_s},
                                                 {"p99", "p99_cct", &SweepRun::p99_s},
                                                 {"slowdown", "mean_slowdown", &SweepRun::slowdown}}};

// Max-min's figure over the policy's of the same load and seed, over seeds (and over loads, where none is given).
struct Ratio {
  double mean = 0, least = 0, most = 0;
  std::size_t runs = 0;
  std::size_t worse = 0;  // of them: a ratio below 1 by more than rounding
};
Ratio ratio_of(const Sweep& sweep, const std::string& policy, const Figure& figure, std::optional<double> load = {});
inline constexpr double kWorseBelow = 1 - 1e-6;

std::string text(const Sweep& sweep);
// [{load, policy, average_cct_ratio{mean, least, most, worse_runs}, ..., average_cct_s, mean_slowdown}]
nlohmann::json to_json(const Sweep& sweep);
// What the document has beside its results: {workload, runs}.
nlohmann::json context_json(const Sweep& sweep);

}  // namespace clustar::bench::coflow
