#include "bench/coflow/compare_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::bench::coflow {
namespace {

double seconds(TimePoint at) { return std::chrono::duration<double>(at - TimePoint{}).count(); }

// Times are counted in nanoseconds, and a mix that shares ports may take what its jobs take one after the other.
Result<void> check_time(const JobMix& mix, double bytes_per_s) {
  constexpr double kMost = 1e9;
  double last_s = 0, longest_s = 0;
  for (const Job& job : mix.jobs) {
    longest_s += spread_alone_s(job, bytes_per_s) * static_cast<double>(job.iterations);
    last_s = std::max(last_s, seconds(job.begins));
  }
  longest_s += last_s;
  if (longest_s >= 0 && longest_s <= kMost) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: it may take {:.2g} s of simulated time; allowed: {:.0e}", mix.name, longest_s, kMost));
}

Result<Summary> run(const JobMix& mix, const Rules& rules, const clustar::coflow::Policy& policy, bool per_coflow,
                    const std::string& which, const Say& say) {
  JobWorkload workload(mix, rules.port_rate);
  auto replayed = replay(workload, rules, policy, [&](std::size_t ended, std::size_t, TimePoint now) {
    say(fmt::format("{}: {} coflows, {:.0f} s", which, ended, seconds(now)), false);
  });
  if (!replayed) return fail(replayed.error().code, fmt::format("{}: {}", policy.spec, replayed.error().message));
  Summary summary = summarize(policy.spec, "exact", *replayed);
  if (per_coflow) summary.each = std::move(replayed->coflows);
  summary.jobs = summarize(mix, workload.results());
  for (const JobSummary& job : summary.jobs) summary.makespan_s = std::max(summary.makespan_s, job.ended_s);
  say(fmt::format("{}: {:.3f} s until the last job ended, {:.2f} s of CPU", which, summary.makespan_s, summary.cpu_s),
      true);
  return summary;
}

}  // namespace

Result<Comparison> compare_jobs(const Source& source, const CompareOptions& options,
                                const std::vector<clustar::coflow::Policy>& policies, const Say& say) {
  if (options.rules != "exact") {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--rules {}; allowed with jobs: exact", options.rules));
  }
  if (options.refill) {
    return fail(ErrorCode::kInvalidArgument, "--refill-ms is not for jobs: they wait for the ends of flows");
  }
  Rules rules;
  rules.port_rate = options.port_gbps * 1e9 / 8;
  const auto mix = mix_of(source, rules.port_rate);
  if (!mix) return tl::unexpected(mix.error());
  if (const auto ok = check_time(*mix, rules.port_rate); !ok) return tl::unexpected(ok.error());
  Comparison comparison;
  comparison.workload = mix->name;
  comparison.ports = mix->ports;
  comparison.port_gbps = options.port_gbps;
  comparison.load = load_of(*mix, rules.port_rate);
  comparison.rules = options.rules;
  comparison.jobs = true;
  comparison.gpus_per_port = mix->gpus_per_port;
  for (const auto& policy : policies) {
    const std::string which = fmt::format("[{}/{}] {}", comparison.policies.size() + 1, policies.size(), policy.spec);
    auto summary = run(*mix, rules, policy, options.per_coflow, which, say);
    if (!summary) return tl::unexpected(summary.error());
    comparison.policies.push_back(std::move(*summary));
  }
  return comparison;
}

}  // namespace clustar::bench::coflow
