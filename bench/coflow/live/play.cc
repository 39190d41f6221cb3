#include "bench/coflow/live/play.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "bench/fabric/process_fabric.h"

namespace clustar::bench::coflow::live {
namespace {

constexpr const char* kPrefix = "play";
constexpr double kHeaders = 52, kEthernet = 14;  // IP and TCP with a time stamp; what the shaper counts

struct Material {
  bool per_coflow = false;
  std::optional<Trace> trace;
  std::optional<JobMix> mix;
};

// One run of the workload, real or simulated.
using Run = std::function<Result<Replay>(Workload&)>;

double seconds(TimePoint at) { return std::chrono::duration<double>(at - TimePoint{}).count(); }

Result<Summary> run_once(const Material& material, const std::string& name, const std::string& rules, double port_rate,
                         const Run& run) {
  if (material.trace) {
    TraceWorkload workload(*material.trace);
    const auto replayed = run(workload);
    if (!replayed) return tl::unexpected(replayed.error());
    Summary summary = summarize(name, rules, *replayed);
    if (material.per_coflow) summary.each = replayed->coflows;
    return summary;
  }
  JobWorkload workload(*material.mix, port_rate);
  const auto replayed = run(workload);
  if (!replayed) return tl::unexpected(replayed.error());
  Summary summary = summarize(name, rules, *replayed);
  if (material.per_coflow) summary.each = replayed->coflows;
  summary.jobs = summarize(*material.mix, workload.results());
  for (const JobSummary& job : summary.jobs) summary.makespan_s = std::max(summary.makespan_s, job.ended_s);
  return summary;
}

Result<Summary> simulate(const Material& material, const std::string& spec, double port_rate, const Stop& stop) {
  const auto policy = clustar::coflow::find_policy(spec);
  if (!policy) return tl::unexpected(policy.error());
  Rules rules;
  rules.port_rate = port_rate;
  return run_once(material, spec, "exact", port_rate,
                  [&](Workload& workload) { return replay(workload, rules, *policy, {}, stop); });
}

class Fabrics {  // one that goes with it
 public:
  static Result<Fabrics> up(const PlayOptions& options, std::size_t hosts) {
    if (const auto ok = fabric::check_root(); !ok) return tl::unexpected(ok.error());
    for (const std::string& problem : fabric::remove_orphans(kPrefix)) {
      std::cerr << fmt::format("clustar coflow play: left of an earlier run: {}\n", problem);
    }
    fabric::FabricSpec spec;
    spec.name = fabric::process_fabric_name(kPrefix);
    spec.hosts = static_cast<int>(hosts);
    spec.rate_bps = options.rate_bps;
    spec.mtu = options.mtu;
    spec.buffer_bytes = options.buffer_bytes;
    auto made = fabric::Fabric::up(spec);
    if (!made) return tl::unexpected(made.error());
    Fabrics fabrics;
    fabrics.fabric_ = std::make_unique<fabric::Fabric>(std::move(*made));
    return fabrics;
  }
  ~Fabrics() {
    if (!fabric_) return;
    if (const auto removed = fabric_->down(); !removed) {
      std::cerr << fmt::format(
          "clustar coflow play: cannot remove its fabric: {}; try: clustar fabric down --name {}\n",
          removed.error().message, fabric_->spec().name);
    }
  }
  Fabrics(Fabrics&&) = default;
  Fabrics& operator=(Fabrics&&) = delete;
  const fabric::Fabric& operator*() const { return *fabric_; }

 private:
  Fabrics() = default;
  std::unique_ptr<fabric::Fabric> fabric_;
};

// Only the simulator has weights; what is played beside it would not be the same.
Result<void> check_weights(const JobMix& mix) {
  const auto differs = [&](const Job& job) { return job.weight != mix.jobs.front().weight; };
  if (std::none_of(mix.jobs.begin(), mix.jobs.end(), differs)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: jobs that weigh differently (--muri intensity=1; share and tflop of --job) are not "
                          "played; allowed: without these, or clustar coflow replay",
                          mix.name));
}

Result<Material> material_of(const Source& source, const PlayOptions& options, std::size_t& left_out) {
  const double trace_rate = options.trace_gbps * 1e9 / 8;
  const double smaller = static_cast<double>(options.rate_bps) / (options.trace_gbps * 1e9);
  Material material;
  material.per_coflow = options.per_coflow;
  if (has_jobs(source)) {
    auto mix = mix_of(source, trace_rate);
    if (!mix) return tl::unexpected(mix.error());
    if (const auto ok = check_weights(*mix); !ok) return tl::unexpected(ok.error());
    left_out = leave_out_local(*mix);
    scale(*mix, smaller);
    material.mix = std::move(*mix);
    return material;
  }
  auto trace = trace_of(source, trace_rate);
  if (!trace) return tl::unexpected(trace.error());
  left_out = leave_out_local(*trace);
  scale(*trace, smaller);
  if (trace->coflows.empty()) return fail(ErrorCode::kInvalidArgument, trace->name + ": no flow between two hosts");
  material.trace = std::move(*trace);
  return material;
}

Result<void> check(const Performance& performance, const Plan& plan, const std::vector<Arm>& arms) {
  if (performance.hosts < 2 || performance.hosts > kMostHosts) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} has {} ports; allowed: 2 to {}, each is a host",
                                                         performance.workload, performance.hosts, kMostHosts));
  }
  if (performance.jobs && plan.lanes().empty()) {
    return fail(ErrorCode::kInvalidArgument, performance.workload + ": no job sends anything between two hosts");
  }
  if (!performance.jobs) return check_size(plan, performance.workload, {});
  if (performance.gpus_per_host > 0) {
    return check_size(plan, performance.workload,
                      {.of_host = true, .in_all = true, .lower = "--muri jobs=24,ports=4,scale=100000"});
  }
  const bool agree = std::any_of(arms.begin(), arms.end(),
                                 [](const Arm& arm) { return arm.order == "coflow" && arm.process_per_job; });
  return check_size(plan, performance.workload,
                    {.of_host = agree, .in_all = false, .lower = "fewer jobs, or more ranks_per_port (--job),"});
}

// What the simulator says of each arm that it has, and how long the longest takes.
Result<double> predict(const Material& material, double port_rate, const PlayOptions& options,
                       std::vector<Played>& arms, const Say& say) {
  double longest = 0;
  for (Played& played : arms) {
    const std::string& spec = material.mix ? played.arm.jobs_policy : played.arm.trace_policy;
    if (spec.empty()) continue;
    say(fmt::format("simulating {}", spec), false);
    auto summary = simulate(material, spec, port_rate, options.stop);
    if (options.stop && options.stop()) return fail(ErrorCode::kUnavailable, "interrupted");
    if (!summary) return fail(summary.error().code, fmt::format("{}: {}", spec, summary.error().message));
    longest = std::max(longest, summary->makespan_s);
    played.simulated = std::move(*summary);
  }
  if (longest > 0) return longest;
  const auto fair = simulate(material, "maxmin", port_rate, options.stop);
  if (!fair) return tl::unexpected(fair.error());
  return fair->makespan_s;
}

}  // namespace

Result<Performance> perform(const Source& source, const PlayOptions& options, const Say& say) {
  Performance performance;
  const auto material = material_of(source, options, performance.left_out);
  if (!material) return tl::unexpected(material.error());
  Plan plan = material->mix ? Plan::of(*material->mix) : Plan::of(*material->trace);
  const double port_rate =
      static_cast<double>(options.rate_bps) / 8 * (options.mtu - kHeaders) / (options.mtu + kEthernet);
  performance.workload = material->mix ? material->mix->name : material->trace->name;
  performance.hosts = material->mix ? material->mix->ports : material->trace->ports;
  performance.rate_bps = options.rate_bps;
  performance.mtu = options.mtu;
  performance.trace_gbps = options.trace_gbps;
  performance.line_mbps = port_rate * 8 / 1e6;
  performance.load = material->mix ? load_of(*material->mix, port_rate) : load_of(*material->trace, port_rate);
  performance.jobs = material->mix.has_value();
  if (performance.jobs) {
    performance.gpus_per_host = material->mix->gpus_per_port;
    performance.scale = material->mix->scale;
  }
  if (const auto ok = check(performance, plan, options.arms); !ok) return tl::unexpected(ok.error());
  for (const Arm& arm : options.arms) {
    if (!arm.process_per_job && !performance.jobs) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--arms: {} is for jobs (--job); of a trace it is coflow", arm.name));
    }
    performance.arms.push_back({arm, {}, {}});
  }
  const auto longest = predict(*material, port_rate, options, performance.arms, say);
  if (!longest) return tl::unexpected(longest.error());
  if (*longest > kMostSeconds) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a round takes {:.0f} s; allowed: {:.0f}. {}", *longest, kMostSeconds,
                            performance.gpus_per_host > 0 ? "Fewer jobs, or a larger scale (--muri)"
                                                          : "Fewer coflows or iterations, or another --gbps"));
  }
  const auto limit = Duration(static_cast<Duration::rep>((*longest * 5 + 60) * 1e9));
  say(fmt::format("{} arms, {} rounds: about {:.0f} s", options.arms.size(), options.rounds,
                  (*longest + 2) * static_cast<double>(options.arms.size()) * options.rounds),
      true);
  const auto fabric = Fabrics::up(options, performance.hosts);
  if (!fabric) return tl::unexpected(fabric.error());
  Stage stage{**fabric, port_rate, options.environment, options.stop};
  if (material->mix) {
    stage.jobs = names_of(*material->mix);
    for (const Job& job : material->mix->jobs) stage.deadlines_ms.push_back(job.deadline_ms);
  }
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<Summary> summaries;
    for (const Arm& arm : options.arms) {
      const std::string which = fmt::format("round {}/{} {}", round + 1, options.rounds, arm.name);
      const Progress progress = [&](std::size_t ended, std::size_t arrived, TimePoint now) {
        say(fmt::format("{}: {} of {} coflows so far, {:.0f} s", which, ended, arrived, seconds(now)), false);
      };
      auto summary = run_once(*material, arm.name, "live", port_rate,
                              [&](Workload& workload) { return play(workload, plan, arm, stage, limit, progress); });
      if (!summary) {
        const std::string why = fmt::format("{}: {}", which, summary.error().message);
        if (round == 0) return fail(summary.error().code, why);
        performance.incomplete = why;
        return performance;
      }
      say(fmt::format("{}: {:.3f} s on average, {:.1f} s in all", which, summary->average_s, summary->makespan_s),
          true);
      summaries.push_back(std::move(*summary));
    }
    for (std::size_t i = 0; i < summaries.size(); ++i) performance.arms[i].rounds.push_back(std::move(summaries[i]));
  }
  return performance;
}

}  // namespace clustar::bench::coflow::live
