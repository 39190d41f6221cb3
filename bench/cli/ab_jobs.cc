#include "bench/cli/ab_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "bench/ab/interrupt.h"
#include "bench/ab/jobs/conduct.h"
#include "bench/ab/jobs/jobs_file.h"
#include "bench/ab/jobs/queue.h"
#include "bench/ab/jobs/results.h"
#include "bench/ab/jobs/stage.h"
#include "bench/ab/jobs/traffic.h"
#include "bench/cli/options.h"
#include "bench/report/report.h"
#include "bench/trainer/digest.h"
#include "bench/trainer/launcher.h"
#include "bench/trainer/model.h"
#include "bench/trainer/rank.h"
#include "bench/trainer/record.h"
#include "transport/base/own_folder.h"

namespace clustar::bench::cli {
namespace {

namespace jobs = ab::jobs;
using nlohmann::json;

constexpr const char* kClearLine = "\r\033[K";

int tell_of_jobs(int status, const std::string& message) {
  std::cerr << "clustar ab: " << message << "\n";
  return status;
}

std::uint64_t digest_of(const std::string& text) { return trainer::digest(std::as_bytes(std::span(text))); }

// Before there is a fabric, so that unusable data is reported once. Models differ in the images that they take.
Result<void> check_data(const jobs::JobsPlan& plan) {
  trainer::TrainConfig config = plan.training.train;
  if (config.data.empty()) return {};
  std::set<std::string> seen;
  for (const jobs::JobSpec& job : plan.jobs) {
    if (!job.trains()) continue;
    config.model = std::get<jobs::Training>(job.work).model;
    if (!seen.insert(config.model).second) continue;
    const auto model = trainer::make_model(config.model);
    if (!model) return tl::unexpected(model.error());
    if (const auto data = trainer::load_data(config, *model); !data) {
      return fail(data.error().code, fmt::format("job '{}': --data: {}", job.name, data.error().message));
    }
  }
  return {};
}

Result<jobs::JobsPlan> jobs_plan(const AbJobsArguments& arguments, const AbJobsInput& input) {
  const auto text = jobs::read_jobs_text(arguments.file);
  if (!text) return tl::unexpected(text.error());
  auto list = jobs::parse_jobs(*text, arguments.file);
  if (!list) return tl::unexpected(list.error());
  jobs::JobsPlan plan{.file = arguments.file,
                      .digest = digest_of(*text),
                      .jobs = std::move(*list),
                      .arms = {input.training.baseline, input.training.candidate},
                      .rounds = input.training.rounds,
                      .fabric = input.fabric,
                      .training = input.training,
                      .limit_s = input.limit_s};
  if (!input.hosts_given) plan.fabric.hosts = std::max(fabric::kMinHosts, jobs::hosts_of(plan.jobs));
  const std::string own_plugin = absolute_path(installed_library("libnccl-net-clustar.so"));
  const auto processes = jobs::check(plan, own_plugin);
  if (!processes) return tl::unexpected(processes.error());
  plan.processes = *processes;
  return plan;
}

json jobs_document(json outcome) {
  json document = report::envelope("ab", jobs::rows(outcome));
  document["command_line"] = report::command_line();
  document["jobs"] = std::move(outcome);
  return document;
}

// The testbed lives in here only: whatever happens, it is gone on return.
Result<jobs::JobsOutcomes> measure_jobs(const jobs::JobsPlan& plan, const AbJobsInput& input) {
  auto testbed = ab::Testbed::on_fabric(plan.fabric);
  if (!testbed) return tl::unexpected(testbed.error());
  if (const auto proof = testbed->fabric()->prove(); !proof) return tl::unexpected(proof.error());
  std::function<void(const std::string&)> on_tick;
  if (input.ticks) on_tick = [](const std::string& far) { std::cerr << kClearLine << far << std::flush; };
  jobs::Stage stage(plan, *testbed, on_tick);
  jobs::JobsEvents events;
  events.on_run = [&](const jobs::Run& run, int done, int total) {
    std::cerr << (input.ticks ? kClearLine : "") << jobs::run_line(plan, run, done, total) << "\n";
  };
  if (input.output.to_files()) {
    events.on_change = [&](const jobs::JobsOutcomes& so_far) {
      const auto ok = input.output.write_files(jobs_document(jobs::to_json(plan, so_far)), jobs::page);
      if (!ok) tell_of_jobs(kFailed, "warning: " + ok.error().message);
    };
  }
  events.interrupted = [] { return ab::Interrupt::signal_number(); };
  return jobs::conduct(
      plan, [&](const jobs::Slot& slot, int round) { return stage.run(slot, round); }, events);
}

int show_jobs(const jobs::JobsPlan& plan, const jobs::JobsOutcomes& outcomes, const AbJobsInput& input) {
  const json document = jobs_document(jobs::to_json(plan, outcomes));
  input.output.people() << jobs::table(document["jobs"]) << std::flush;
  if (const auto ok = input.output.write(document, jobs::page); !ok) return tell_of_jobs(kFailed, ok.error().message);
  if (!outcomes.ended_by.empty()) return tell_of_jobs(kFailed, outcomes.ended_by + "; the runs before that are kept");
  const int failed = document["jobs"]["failed_runs"];
  if (failed == 0) return kOk;
  return tell_of_jobs(kFailed, fmt::format("{} of {} runs failed; see the warnings", failed, outcomes.runs.size()));
}

}  // namespace

CLI::Option* add_ab_jobs_options(CLI::App& command, AbJobsArguments& arguments) {
  auto* option = command.add_option("--jobs", arguments.file,
                                    "Several jobs at once on one fabric, as this TOML file lists them (docs/ab.md), "
                                    "and each alone; [arms: CLUSTAR_SEND_ORDER=fifo and =coflow]");
  option->type_name("FILE.toml")->group("Jobs that share a fabric (needs root)");
  auto* play = command.add_option("--play", arguments.play, "For a process that this command starts itself");
  play->group("")->needs(option);
  command.add_option("--fabric", arguments.fabric, "Of --play")->group("")->needs(play);
  command.add_option("--report-fd", arguments.report_fd, "Of --play")->group("")->needs(play);
  command.add_option("--digest", arguments.digest, "Of --play")->group("")->needs(play);
  return option;
}

int run_ab_jobs(const AbJobsArguments& arguments, const AbJobsInput& input) {
  const auto plan = jobs_plan(arguments, input);
  if (!plan) return tell_of_jobs(kUsage, plan.error().message);
  if (const auto ok = check_data(*plan); !ok) return tell_of_jobs(kFailed, ok.error().message);
  if (const auto ok = fabric::check_root(); !ok) return tell_of_jobs(kFailed, ok.error().message);
  const ab::Interrupt interrupt;
  const auto outcomes = measure_jobs(*plan, input);
  if (!outcomes) return tell_of_jobs(kFailed, outcomes.error().message);
  return show_jobs(*plan, *outcomes, input);
}

int play_ab_job(const AbJobsArguments& arguments, int limit_s) {
  trainer::end_with_launcher();
  const ab::Interrupt interrupt;
  const auto report = [&](const json& record) { return trainer::write_record(arguments.report_fd, record); };
  const auto played = [&]() -> Result<jobs::PlayedTrace> {
    const auto text = jobs::read_jobs_text(arguments.file);
    if (!text) return tl::unexpected(text.error());
    if (digest_of(*text) != arguments.digest) {
      return fail(ErrorCode::kInvalidArgument, arguments.file + " has changed since the comparison began");
    }
    const auto list = jobs::parse_jobs(*text, arguments.file);
    if (!list) return tl::unexpected(list.error());
    const auto job =
        std::find_if(list->begin(), list->end(), [&](const jobs::JobSpec& one) { return one.name == arguments.play; });
    if (job == list->end() || job->trains()) return fail(ErrorCode::kInvalidArgument, "no such job");
    const auto on_iteration = [&](std::size_t done, std::size_t total) {
      report(trainer::to_record(trainer::Progress{.epoch = 1, .epochs = 1, .step = done, .steps = total}));
    };
    return jobs::play(*job, arguments.fabric, limit_s, on_iteration,
                      [] { return ab::Interrupt::signal_number() != 0; });
  }();
  if (!played) {
    report(trainer::to_record(played.error()));
    return kFailed;
  }
  json results{{"step_seconds", played->step_s}, {"failure", nullptr}};
  if (!played->queue.empty()) results["queue"] = jobs::queue_json(played->queue);
  report({{"results", std::move(results)}});
  return kOk;
}

}  // namespace clustar::bench::cli
