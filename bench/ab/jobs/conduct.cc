#include "bench/ab/jobs/conduct.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bench/ab/jobs/jobs_file.h"
#include "bench/ab/jobs/traffic.h"
#include "bench/coflow/live/plan.h"
#include "bench/trainer/limits.h"

namespace clustar::bench::ab::jobs {
namespace {

constexpr int kHeldOutPart = 5;  // of the examples one in so many is not trained on
constexpr int kMostFailures = 2;

char letter(std::size_t arm) { return arm == 0 ? 'A' : 'B'; }

std::size_t examples_of(const JobsPlan& plan, const Training& training) {
  return training.examples.value_or(plan.training.train.generated);
}

tl::unexpected<Error> wrong(const JobsPlan& plan, const JobSpec& job, const std::string& message) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: job '{}': {}", plan.file, job.name, message));
}

Result<void> check_training(const JobsPlan& plan, const JobSpec& job) {
  const auto& training = std::get<Training>(job.work);
  const int batch = batch_of(plan, training);
  if (batch < static_cast<int>(job.hosts.size())) {
    return wrong(plan, job, fmt::format("batch: {} gives some of its {} ranks nothing to do", batch, job.hosts.size()));
  }
  if (training.steps && epochs_of(plan, training) > trainer::kEpochs.most) {
    return wrong(plan, job,
                 fmt::format("steps: {} are {} passes over the examples; allowed: up to {} passes", *training.steps,
                             epochs_of(plan, training), trainer::kEpochs.most));
  }
  if (plan.training.train.data.empty()) return {};
  if (training.examples) return wrong(plan, job, "examples: is for generated digits; without --data only");
  if (training.steps) return wrong(plan, job, "steps: is for generated digits; with --data allowed: epochs");
  return {};
}

Result<void> check_traffic(const JobsPlan& plan, const JobSpec& job, const std::string& own_plugin) {
  for (std::size_t arm = 0; arm < plan.arms.size(); ++arm) {
    if (plan.arms[arm].plugin == own_plugin) continue;
    return wrong(plan, job,
                 fmt::format("trace: is played over clustar's own transports; arm {} has another plugin", letter(arm)));
  }
  if (plan.fabric.rate_bps == 0) return wrong(plan, job, "trace: sizes follow from the line; allowed: --rate, not off");
  return {};
}

// Of a job that fits for itself.
Result<Processes> processes_of_job(const JobsPlan& plan, const JobSpec& job) {
  if (job.trains()) {
    Processes processes;
    for (const int host : job.hosts) processes[host] = 1;
    return processes;
  }
  const auto mix = mix_of(job, plan.fabric.rate_bps);
  if (!mix) return fail(mix.error().code, plan.file + ": " + mix.error().message);
  return processes_of(*mix);
}

// Those of a host that send agree on their order up to so many. Few jobs get there without a queue.
Result<std::size_t> check_processes(const JobsPlan& plan, const std::vector<Processes>& of_jobs) {
  Processes of_hosts;
  std::size_t in_all = 0;
  for (const Processes& job : of_jobs) {
    for (const auto& [host, count] : job) {
      of_hosts[host] += count;
      in_all += count;
    }
  }
  const auto busiest = std::max_element(of_hosts.begin(), of_hosts.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool queues =
      std::any_of(plan.jobs.begin(), plan.jobs.end(), [](const JobSpec& job) { return job.is_queue(); });
  constexpr std::size_t kOfHost = coflow::live::kMostJobsOfAHost, kInAll = coflow::live::kMostPlaces;
  if (!queues || (busiest->second <= kOfHost && in_all <= kInAll)) return in_all;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < of_jobs.size(); ++i) {
    const auto here = of_jobs[i].find(busiest->first);
    if (here != of_jobs[i].end()) parts.push_back(fmt::format("'{}' {}", plan.jobs[i].name, here->second));
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: jobs: {} processes send from host {} ({}), {} in all; allowed: {} and {}; smaller queues, "
                  "or fewer hosts",
                  plan.file, busiest->second, busiest->first, fmt::join(parts, ", "), in_all, kOfHost, kInAll));
}

Result<void> check_arm(const JobsPlan& plan, const JobSpec& job, std::size_t arm, const std::string& own_plugin) {
  const Arm& one = plan.arms[arm];
  for (const auto& [name, value] : one.settings) {
    if (job.settings.count(name) == 0) continue;
    return wrong(plan, job,
                 fmt::format("arm {} sets {}, and so does the job; allowed: one of them", letter(arm), name));
  }
  // Settings of another plugin are its own business.
  if (one.plugin != own_plugin) return {};
  const Settings inherited = inherited_settings();
  const Arm all{.name = one.name, .settings = environment_of(plan, job, one, inherited), .plugin = one.plugin};
  const auto ok = check_settings(all, inherited);
  if (ok) return {};
  return wrong(plan, job, fmt::format("with arm {}: {}", letter(arm), ok.error().message));
}

int failures_of(const JobsOutcomes& outcomes, const Slot& slot) {
  return static_cast<int>(std::count_if(outcomes.runs.begin(), outcomes.runs.end(),
                                        [&](const Run& run) { return run.slot == slot && !run.failure.empty(); }));
}

}  // namespace

int batch_of(const JobsPlan& plan, const Training& training) {
  return training.batch.value_or(plan.training.train.batch);
}

int epochs_of(const JobsPlan& plan, const Training& training) {
  if (!training.steps) return training.epochs.value_or(plan.training.train.epochs);
  const auto examples = static_cast<int>(examples_of(plan, training));
  const int batch = batch_of(plan, training);
  const int per_epoch = (examples - examples / kHeldOutPart + batch - 1) / batch;
  return (*training.steps + per_epoch - 1) / per_epoch;
}

Result<std::size_t> check(const JobsPlan& plan, const std::string& own_plugin) {
  std::vector<Processes> processes;
  for (const JobSpec& job : plan.jobs) {
    const int most = *std::max_element(job.hosts.begin(), job.hosts.end());
    if (most >= plan.fabric.hosts) {
      return wrong(
          plan, job,
          fmt::format("hosts: there is no host {}; allowed: 0 to {}, or more --hosts", most, plan.fabric.hosts - 1));
    }
    const auto ok = job.trains() ? check_training(plan, job) : check_traffic(plan, job, own_plugin);
    if (!ok) return tl::unexpected(ok.error());
    auto of_job = processes_of_job(plan, job);
    if (!of_job) return tl::unexpected(of_job.error());
    processes.push_back(std::move(*of_job));
    for (std::size_t arm = 0; arm < plan.arms.size(); ++arm) {
      if (const auto fits = check_arm(plan, job, arm, own_plugin); !fits) return tl::unexpected(fits.error());
    }
  }
  return check_processes(plan, processes);
}

std::string name_of(const JobsPlan& plan, const Slot& slot) {
  if (slot.alone) return plan.jobs[*slot.alone].name + " alone";
  return fmt::format("{}, all jobs", letter(slot.arm));
}

std::vector<Slot> order_of_round(std::size_t jobs, int round) {
  std::vector<Slot> order{{.arm = 0}};
  for (std::size_t job = 0; jobs > 1 && job < jobs; ++job) order.push_back({.arm = 0, .alone = job});
  order.push_back({.arm = 1});
  if (round % 2 != 0) std::reverse(order.begin(), order.end());
  return order;
}

std::vector<std::string> train_arguments(const JobsPlan& plan, const JobSpec& job, const Arm& arm, int round) {
  const auto& training = std::get<Training>(job.work);
  Plan one = plan.training;
  one.baseline = arm;
  one.train.model = training.model;
  one.train.epochs = epochs_of(plan, training);
  one.train.batch = batch_of(plan, training);
  one.train.generated = examples_of(plan, training);
  auto arguments = ab::train_arguments(one, Role::kBaseline, round);
  arguments.insert(arguments.end(), {"--all-reduce", training.all_reduce});
  return arguments;
}

Settings environment_of(const JobsPlan& plan, const JobSpec& job, const Arm& arm, const Settings& inherited) {
  Settings settings = arm.settings;
  settings.insert(job.settings.begin(), job.settings.end());
  // emplace: an arm or a job may say otherwise.
  settings.emplace("CLUSTAR_SOCKET_IFNAME", fabric::kHostInterface);
  settings.emplace("NCCL_SOCKET_IFNAME", fabric::kHostInterface);
  // The driver of a virtual interface knows no speed, and an order needs one.
  const std::uint64_t mbps = plan.fabric.rate_bps / 1'000'000;
  if (mbps > 0 && inherited.count("CLUSTAR_LINE_MBPS") == 0)
    settings.emplace("CLUSTAR_LINE_MBPS", std::to_string(mbps));
  return settings;
}

JobsOutcomes conduct(const JobsPlan& plan, const std::function<Result<Run>(const Slot&, int round)>& run,
                     const JobsEvents& events) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  JobsOutcomes outcomes;
  const int total = plan.rounds * static_cast<int>(order_of_round(plan.jobs.size(), 0).size());
  int done = 0;
  for (int round = 0; round < plan.rounds; ++round) {
    for (const Slot& slot : order_of_round(plan.jobs.size(), round)) {
      ++done;
      const std::string which = fmt::format("round {} of {}, {}", round + 1, plan.rounds, name_of(plan, slot));
      if (const int signal = events.interrupted ? events.interrupted() : 0; signal != 0) {
        outcomes.ended_by = fmt::format("{}: interrupted by signal {} ({})", which, signal, strsignal(signal));
        return outcomes;
      }
      if (failures_of(outcomes, slot) >= kMostFailures) {
        const std::string name = name_of(plan, slot);
        auto& left_out = outcomes.left_out;
        if (std::find(left_out.begin(), left_out.end(), name) == left_out.end()) left_out.push_back(name);
        continue;
      }
      auto result = run(slot, round);
      outcomes.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (!result) {
        outcomes.ended_by = fmt::format("{}: {}", which, result.error().message);
        return outcomes;
      }
      outcomes.runs.push_back(std::move(*result));
      if (events.on_run) events.on_run(outcomes.runs.back(), done, total);
      if (events.on_change) events.on_change(outcomes);
    }
  }
  return outcomes;
}

}  // namespace clustar::bench::ab::jobs
