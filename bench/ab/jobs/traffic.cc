#include "bench/ab/jobs/traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bench/coflow/aicb.h"
#include "bench/coflow/csv.h"
#include "bench/coflow/live/conductor.h"
#include "bench/coflow/muri.h"
#include "bench/fabric/spec.h"
#include "bench/report/report.h"

namespace clustar::bench::ab::jobs {
namespace {

using coflow::JobMix;

constexpr double kMtu = 1500, kHeaders = 52, kEthernet = 14;  // IP and TCP with a time stamp; what the shaper counts

std::size_t quotient_up(std::size_t all, std::size_t parts) { return (all + parts - 1) / parts; }

// Ranks go to hosts so many at a time, which may leave the last hosts without any.
bool reaches_all(std::size_t ranks, std::size_t hosts) {
  return quotient_up(ranks, quotient_up(ranks, hosts)) == hosts;
}

Result<void> check_hosts(std::size_t ranks, std::size_t hosts, const std::string& path) {
  if (ranks < 2 || reaches_all(ranks, hosts)) return {};
  std::vector<std::size_t> allowed;
  for (std::size_t count = 2; count <= std::min<std::size_t>(ranks, fabric::kMaxHosts); ++count) {
    if (reaches_all(ranks, count)) allowed.push_back(count);
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("hosts: the {} ranks of {}, spread evenly, leave some of {} hosts without any; allowed: {} hosts",
                  ranks, path, hosts, fmt::join(allowed, ", ")));
}

Result<coflow::Job> aicb(const JobSpec& job, const Traffic& traffic, const std::string& text, double trace_rate) {
  const auto iteration = coflow::parse_aicb(text, traffic.path);
  if (!iteration) return tl::unexpected(iteration.error());
  if (const auto ok = check_hosts(iteration->world, job.hosts.size(), traffic.path); !ok) {
    return tl::unexpected(ok.error());
  }
  coflow::AicbOptions options;
  options.layout.ranks_per_port = quotient_up(iteration->world, job.hosts.size());
  options.iterations = static_cast<std::size_t>(traffic.iterations);
  options.compute_ms = traffic.compute_ms;
  if (traffic.duty) options.duty = *traffic.duty;
  return coflow::aicb_job(*iteration, job.name, options, trace_rate);
}

// All its network time as a ring over the job's hosts, however many GPUs it had.
Result<coflow::Job> muri(const JobSpec& job, const Traffic& traffic, const std::string& text, double trace_rate) {
  coflow::MuriOptions options;
  options.ports = job.hosts.size();
  options.gpus_per_port = 1024;
  // One iteration is left of each job, so that the limit on all of a trace says nothing of a long one.
  options.scale = 1e12;
  auto mix = coflow::parse_muri(text, traffic.path, options, trace_rate);
  if (!mix) return tl::unexpected(mix.error());
  for (coflow::Job& one : mix->jobs) {
    if (one.name.substr(0, one.name.find(' ')) != *traffic.id) continue;
    one.begins = {};
    one.gpus = 0;
    one.iterations = static_cast<std::size_t>(traffic.iterations);
    const auto ports = static_cast<clustar::coflow::PortId>(job.hosts.size());
    for (coflow::Phase& phase : one.phases) {
      for (clustar::coflow::PortId port = 0; port < ports && phase.ring_bytes > 0; ++port) {
        phase.flows.push_back({port, (port + 1) % ports, phase.ring_bytes});
      }
      phase.ring_bytes = 0;
    }
    return std::move(one);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: no line has job_id {}", traffic.path, coflow::printable(*traffic.id)));
}

// Jobs as the trace has them, on the first hosts.
Result<JobMix> queue_of(const JobSpec& job, const Traffic& traffic, const std::string& text, double trace_rate,
                        double smaller) {
  coflow::MuriOptions options;
  options.ports = job.hosts.size();
  options.gpus_per_port = traffic.queue->gpus_per_host;
  options.scale = traffic.queue->scale;
  options.jobs = traffic.queue->jobs;
  options.lower = "raise scale, or lower queue,";
  auto mix = coflow::parse_muri(text, traffic.path, options, trace_rate);
  if (!mix) return tl::unexpected(mix.error());
  if (mix->jobs.size() < traffic.queue->jobs) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("queue: {} has {} jobs; allowed: 1 to {}", traffic.path,
                                                         mix->jobs.size(), mix->jobs.size()));
  }
  coflow::live::scale(*mix, smaller);
  mix->name = job.name;
  const auto plan = coflow::live::Plan::of(*mix);
  if (plan.lanes().empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("trace: no job of {} sends anything", traffic.path));
  }
  const auto ok = coflow::live::check_size(
      plan, "queue", {.of_host = true, .in_all = true, .lower = "a smaller queue, or fewer hosts,"});
  if (!ok) return tl::unexpected(ok.error());
  return mix;
}

bool counts(const JobMix& mix, const coflow::Job& job) { return mix.gpus_per_port == 0 || coflow::may_ring(job); }

}  // namespace

Result<JobMix> mix_of(const JobSpec& job, std::uint64_t rate_bps, const std::string& text) {
  const auto& traffic = std::get<Traffic>(job.work);
  const double trace_rate = traffic.gbps * 1e9 / 8;
  const double smaller = static_cast<double>(rate_bps) / (traffic.gbps * 1e9);
  const auto named = [&](const Error& error) {
    return fail(error.code, fmt::format("job '{}': {}", job.name, error.message));
  };
  if (traffic.queue) {
    auto queue = queue_of(job, traffic, text, trace_rate, smaller);
    return queue ? std::move(queue) : named(queue.error());
  }
  auto one = traffic.source == "muri" ? muri(job, traffic, text, trace_rate) : aicb(job, traffic, text, trace_rate);
  if (!one) return named(one.error());
  std::size_t flows = 0;
  JobMix mix{.name = job.name, .ports = 0, .gpus_per_port = 0, .jobs = {}};
  for (const int host : job.hosts) mix.ports = std::max(mix.ports, static_cast<std::size_t>(host) + 1);
  for (coflow::Phase& phase : one->phases) {
    std::erase_if(phase.flows, [](const auto& flow) { return flow.src == flow.dst; });
    for (clustar::coflow::FlowSpec& flow : phase.flows) {
      flow.src = static_cast<clustar::coflow::PortId>(job.hosts.at(flow.src));
      flow.dst = static_cast<clustar::coflow::PortId>(job.hosts.at(flow.dst));
      flow.bytes *= smaller;
      ++flows;
    }
  }
  if (flows == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("job '{}': trace: {} sends nothing between its hosts", job.name, traffic.path));
  }
  mix.jobs.push_back(std::move(*one));
  return mix;
}

Processes processes_of(const JobMix& mix) {
  Processes processes;
  for (const auto& [host, jobs] : coflow::live::Plan::of(mix).jobs_of_hosts()) {
    processes[static_cast<int>(host)] = jobs.size();
  }
  return processes;
}

Result<JobMix> mix_of(const JobSpec& job, std::uint64_t rate_bps) {
  const auto text = report::read_text(std::get<Traffic>(job.work).path);
  if (!text) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("job '{}': trace: {}", job.name, text.error().message));
  }
  return mix_of(job, rate_bps, *text);
}

Steps::Steps(const JobMix& mix, double bytes_per_s) : seen_(mix.jobs.size(), 0) {
  double seconds = 0;
  for (const coflow::Job& job : mix.jobs) {
    counts_.push_back(counts(mix, job));
    if (!counts_.back()) continue;
    total_ += job.iterations;
    seconds += static_cast<double>(job.iterations) * coflow::spread_alone_s(job, bytes_per_s);
  }
  if (mix.gpus_per_port > 0 && total_ > 0) mean_s_ = seconds / static_cast<double>(total_);
}

void Steps::look(const std::vector<coflow::JobResult>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& iterations = results[i].iterations_s;
    const double alone = results[i].alone_s;
    for (; counts_[i] && seen_[i] < iterations.size(); ++seen_[i]) {
      const double slowed = alone > 0 ? iterations[seen_[i]] / alone : 1;
      seconds_.push_back(mean_s_ > 0 ? mean_s_ * slowed : iterations[seen_[i]]);
    }
  }
}

Result<PlayedTrace> play(const JobSpec& job, const std::string& name, int limit_s,
                         const std::function<void(std::size_t, std::size_t)>& on_iteration,
                         const std::function<bool()>& stop) {
  const auto fabric = fabric::Fabric::find(name);
  if (!fabric) return tl::unexpected(fabric.error());
  const auto mix = mix_of(job, fabric->spec().rate_bps);
  if (!mix) return tl::unexpected(mix.error());
  const double port_rate = static_cast<double>(fabric->spec().rate_bps) / 8 * (kMtu - kHeaders) / (kMtu + kEthernet);
  auto plan = coflow::live::Plan::of(*mix);
  coflow::JobWorkload workload(*mix, port_rate);
  Settings own = inherited_settings();
  coflow::live::Arm arm;
  arm.name = job.name;
  const auto order = own.find("CLUSTAR_SEND_ORDER");
  arm.order = order == own.end() ? "fifo" : order->second;
  arm.sizes = arm.order == "coflow";
  coflow::live::Stage stage{.fabric = *fabric, .port_rate = port_rate, .environment = {}, .stop = stop};
  if (job.is_queue()) {
    // Each of its jobs has a number, so that they take turns.
    stage.first_job = std::stoull(own["CLUSTAR_JOB"]) * kJobsOfAQueue + 1;
    own.erase("CLUSTAR_JOB");
  }
  stage.environment = own;
  stage.jobs = coflow::live::names_of(*mix);
  Steps steps(*mix, port_rate);
  const auto look = [&] {
    const std::size_t told = steps.seconds().size();
    steps.look(workload.results());
    if (steps.seconds().size() > told) on_iteration(steps.seconds().size(), steps.total());
  };
  const auto replay = coflow::live::play(workload, plan, arm, stage, std::chrono::seconds(limit_s),
                                         [&](std::size_t, std::size_t, TimePoint) { look(); });
  if (!replay) return tl::unexpected(replay.error());
  look();
  PlayedTrace played{.step_s = steps.seconds(), .queue = {}};
  if (job.is_queue()) played.queue = coflow::summarize(*mix, workload.results());
  return played;
}

}  // namespace clustar::bench::ab::jobs
