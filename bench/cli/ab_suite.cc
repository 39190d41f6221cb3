#include "bench/cli/ab_suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/ab/interrupt.h"
#include "bench/ab/suite/captured.h"
#include "bench/ab/suite/conduct.h"
#include "bench/ab/suite/figures.h"
#include "bench/ab/suite/page.h"
#include "bench/ab/suite/place.h"
#include "bench/ab/suite/table.h"
#include "bench/cli/ab_training.h"
#include "bench/cli/options.h"
#include "bench/fabric/fabric.h"
#include "bench/report/report.h"
#include "bench/trainer/buckets.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/model.h"
#include "bench/trainer/progress_view.h"
#include "bench/trainer/record.h"

namespace clustar::bench::cli {
namespace {

namespace suite = ab::suite;
using nlohmann::json;

void say(const std::string& message) { std::cerr << "clustar ab: " << message << "\n"; }

json load_average() {
  std::array<double, 3> load{};
  return getloadavg(load.data(), 3) == 3 ? json(load) : json(nullptr);
}

Result<suite::SuitePlan> plan_of(const AbSuiteArguments& arguments, const AbSuiteInput& input) {
  suite::SuitePlan plan;
  auto scenarios = suite::choose_scenarios(arguments.scenarios, input.changes);
  if (!scenarios) return tl::unexpected(scenarios.error());
  plan.scenarios = std::move(*scenarios);
  auto arms = suite::choose_arms(arguments.arms, arguments.algorithms);
  if (!arms) return tl::unexpected(arms.error());
  plan.arms = std::move(*arms);
  plan.reference = arguments.reference;
  if (plan.reference != "auto") {
    if (const auto known = suite::choose_arms({plan.reference}, {}); !known) {
      return fail(known.error().code, "--reference: auto, or the name of an arm: " + known.error().message);
    }
  }
  if (const auto names = suite::in_the_way(ab::inherited_settings()); !names.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the environment sets {}, which the arms of --scenario set themselves; unset it",
                            fmt::join(names, ", ")));
  }
  plan.training = input.training;
  plan.missing = arguments.missing;
  plan.limit_s = arguments.limit_s;
  plan.retry_failed = arguments.retry_failed;
  plan.version = report::envelope("ab", json::array())["version"];
  if (input.rounds > 0) plan.rounds = input.rounds;
  for (const suite::Scenario& scenario : plan.scenarios) {
    if (plan.training.train.batch >= scenario.ranks) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("--batch {} gives some of the {} ranks of {} nothing to do",
                                                         plan.training.train.batch, scenario.ranks, scenario.name));
  }
  const trainer::TrainConfig& train = plan.training.train;
  if (const auto ok = check_ab_data(train); !ok) return tl::unexpected(ok.error());
  const trainer::Model model = *trainer::make_model(train.model, train.model_options);
  for (const trainer::Bucket& bucket : trainer::plan_of(train, model).buckets) {
    plan.largest_bucket_bytes = std::max<std::uint64_t>(plan.largest_bucket_bytes, bucket.elements * sizeof(float));
  }
  return plan;
}

Result<json> earlier(const std::string& path) {
  if (path.empty()) return json(nullptr);
  const auto text = report::read_text(path);
  if (!text) return fail(ErrorCode::kInvalidArgument, "--resume: " + text.error().message);
  const json document = json::parse(*text, nullptr, false);
  if (document.is_object() && document.contains("training")) return document["training"];
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--resume: '{}' is no JSON of clustar ab --scenario; name the file of its --json", path));
}

json document_of(json training) {
  suite::judge(training);
  json document = report::envelope("ab", suite::comparisons(training));
  document["suite"] = "training";
  document["command_line"] = report::command_line();
  document["captured"] = suite::captured_gains(training);
  document["training"] = std::move(training);
  return document;
}

Result<json> measure(const suite::SuitePlan& plan, const AbSuiteInput& input, const json& before) {
  trainer::ProgressView bar(input.bar ? trainer::ProgressView::Style::kBar : trainer::ProgressView::Style::kNone);
  suite::FabricPlace place(plan, [&](const json& record) {
    trainer::Progress progress;
    if (trainer::from_record(record, progress)) bar.show(progress);
  });
  const json load_before = load_average();
  suite::SuiteEvents events;
  events.on_run = [&](const json& run, int done, int total, double rest_s) {
    bar.clear();
    std::cerr << suite::run_line(run, done, total, rest_s) << "\n";
  };
  events.on_change = [&](const json& training) {
    json copy = training;
    copy["load_average_before"] = load_before;
    // The page is drawn at the end: it would take longer with every run.
    const AbOutput document_only{.json_path = input.output.json_path};
    if (const auto ok = document_only.write_files(document_of(std::move(copy)), suite::page); !ok) {
      say(ok.error().message);
    }
  };
  events.interrupted = [] { return ab::Interrupt::signal_number(); };
  const suite::Hands hands = place.hands();
  auto training = suite::conduct(plan, hands, events, before);
  place.close();
  bar.clear();
  if (!training) return training;
  (*training)["load_average_before"] = load_before;
  (*training)["load_average_after"] = load_average();
  return training;
}

bool has_failures(const json& training) {
  for (const json& scenario : training.at("scenarios")) {
    if (!scenario.at("problems").empty()) return true;
    for (const json& run : scenario.at("runs")) {
      if (run.contains("failed")) return true;
    }
  }
  return training.at("interrupted") == true;
}

}  // namespace

CLI::Option* add_ab_suite_options(CLI::App& command, AbSuiteArguments& arguments) {
  const std::string group = "Training in trouble (many arms, each scenario on a fabric of its own; needs root)";
  auto* scenario =
      command.add_option("--scenario", arguments.scenarios,
                         fmt::format("Comma list of {}; or all: {}", fmt::join(suite::scenario_names(), ", "),
                                     fmt::join(suite::default_scenarios(), ", ")));
  scenario->delimiter(',')->type_name("NAME")->group(group);
  std::vector<std::string> carriers;
  for (const suite::Carrier& carrier : suite::all_carriers()) carriers.push_back(carrier.name);
  const auto add = [&](const char* name, auto& value, const std::string& what) {
    return command.add_option(name, value, what)->group(group)->needs(scenario);
  };
  add("--arms", arguments.arms,
      fmt::format("Comma list of {} [all], and mlt-pX: X percent may be missing, at most 10, as mlt-p0.5",
                  fmt::join(carriers, ", ")))
      ->delimiter(',')
      ->type_name("NAME");
  add("--all-reduce", arguments.algorithms, "Comma list of ring, all-to-all, paraexpress [ring,all-to-all]")
      ->delimiter(',')
      ->type_name("NAME");
  add("--missing", arguments.missing, "What the all-to-all does with what is missing: zero, rescale or residual")
      ->check(CLI::IsMember({"zero", "rescale", "residual"}))
      ->capture_default_str();
  add("--reference", arguments.reference,
      "Arm that ratios are taken to, with the same all-reduce; auto: the better of tcp-cubic-rto5 and tcp-bbr-rto5, "
      "and "
      "where those were not run, of tcp-cubic and tcp-bbr, with a warning. Bars against TCP need both rto5 arms")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--time-limit", arguments.limit_s,
                  "Seconds of wall clock after which a run, with --jobs a job, is ended and counts as failed")
      ->group(group)
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  add("--resume", arguments.resume,
      "JSON of an earlier run with the same options and fabrics: what it has is kept and not run again")
      ->type_name("FILE.json");
  command.add_flag("--retry-failed", arguments.retry_failed, "With --resume: runs its failed runs again")
      ->group(group)
      ->needs("--resume");
  return scenario;
}

int run_ab_suite(const AbSuiteArguments& given, const AbSuiteInput& input) {
  AbSuiteArguments arguments = given;
  if (arguments.scenarios == std::vector<std::string>{"all"}) arguments.scenarios.clear();
  const auto plan = plan_of(arguments, input);
  const auto before = plan ? earlier(arguments.resume) : Result<json>(nullptr);
  for (const Error* error : {plan ? nullptr : &plan.error(), before ? nullptr : &before.error()}) {
    if (error == nullptr) continue;
    say(error->message);
    return error->code == ErrorCode::kInvalidArgument ? kUsage : kFailed;
  }
  if (const auto ok = fabric::check_root(); !ok) return say(ok.error().message), kFailed;
  const ab::Interrupt interrupt;
  auto training = measure(*plan, input, *before);
  if (!training) {
    say(training.error().message);
    return training.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed;
  }
  const bool failed = has_failures(*training);
  const json document = document_of(std::move(*training));
  input.output.people() << suite::table(document["training"]) << std::flush;
  if (const auto ok = input.output.write(document, suite::page); !ok) {
    say(ok.error().message);
    return kFailed;
  }
  return failed ? kFailed : kOk;
}

}  // namespace clustar::bench::cli
