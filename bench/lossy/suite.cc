#include "bench/lossy/suite.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/ab/interrupt.h"
#include "bench/lossy/arm.h"
#include "bench/lossy/experiment.h"
#include "bench/lossy/results.h"
#include "bench/perf/other_cpu.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

json load_average() {
  std::array<double, 3> load{};
  return getloadavg(load.data(), 3) == 3 ? json(load) : json(nullptr);
}

std::string own_executable() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "/proc/self/exe" : path.string();
}

// User time of everybody on all cores but of the suite's own processes.
class OtherCpuWatch {
 public:
  OtherCpuWatch() : before_(usage()), begin_(std::chrono::steady_clock::now()) {}
  // When all workers have been waited for.
  json now() const {
    const perf::Usage after = usage();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    const auto other = perf::other_cpu({{before_, after, perf::allowed_cores()}}, after.machine, seconds.count());
    if (!other) return nullptr;
    return {{"cores_used", other->used},
            {"cores", other->cores},
            {"seconds", other->seconds},
            {"disturbs", other->disturbs()}};
  }

 private:
  static perf::Usage usage() {
    perf::Usage usage = perf::usage_now();
    rusage children{};
    getrusage(RUSAGE_CHILDREN, &children);
    usage.own_s += static_cast<double>(children.ru_utime.tv_sec) + static_cast<double>(children.ru_utime.tv_usec) / 1e6;
    return usage;
  }

  perf::Usage before_;
  std::chrono::steady_clock::time_point begin_;
};

Result<void> check(const SuiteOptions& options) {
  for (const std::string& name : options.arms) {
    if (const auto arm = find_arm(name); !arm) return tl::unexpected(arm.error());
  }
  if (options.rounds >= 0 && options.rounds <= 1'000'000) return {};
  return fail(ErrorCode::kInvalidArgument, "rounds: 1 to 1000000 are possible");
}

}  // namespace

Result<json> run_suite(const SuiteOptions& options, const SuiteEvents& events) {
  if (const auto ok = check(options); !ok) return tl::unexpected(ok.error());
  const auto chosen = choose_scenarios(options.scenarios, options.full);
  if (!chosen) return tl::unexpected(chosen.error());
  Run run{.executable = options.executable.empty() ? own_executable() : options.executable,
          .rounds = options.rounds,
          .quick = options.quick,
          .arms = options.arms,
          .seed = options.seed,
          .progress = events.progress};
  const ab::Interrupt interrupt;
  double estimate = 0;
  for (const Scenario& scenario : *chosen) estimate += estimated_seconds(scenario, run);
  if (events.progress) {
    events.progress(estimate < 120 ? fmt::format("this takes about {:.0f} s", estimate)
                                   : fmt::format("this takes about {:.0f} minutes", std::ceil(estimate / 60)));
  }
  const OtherCpuWatch watch;
  json results{{"scenarios", json::array()}, {"load_average_before", load_average()}};
  for (const Scenario& scenario : *chosen) {
    if (arms_of(scenario, run).empty()) continue;
    const auto outcome = conduct(scenario, run);
    if (!outcome) return tl::unexpected(outcome.error());
    results["scenarios"].push_back(to_json(*outcome));
    if (events.scenario) events.scenario(table(results["scenarios"].back()));
  }
  results["load_average_after"] = load_average();
  results["other_cpu"] = watch.now();
  return results;
}

std::vector<std::string> failures(const json& results) {
  std::vector<std::string> failed;
  for (const json& scenario : results["scenarios"]) {
    for (const json& arm : scenario["arms"]) {
      if (!arm.contains("failure")) continue;
      failed.push_back(fmt::format("{}/{}: {}", scenario["name"].get<std::string>(), arm["name"].get<std::string>(),
                                   arm["failure"].get<std::string>()));
    }
  }
  return failed;
}

}  // namespace clustar::bench::lossy
