#include "bench/cli/ab_scaling.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/ab/interrupt.h"
#include "bench/ab/labels.h"
#include "bench/ab/scaling/results.h"
#include "bench/cli/ab_training.h"
#include "bench/cli/options.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

namespace scaling = ab::scaling;
using nlohmann::json;

struct Measured {
  scaling::ScalingOutcomes outcomes;
  std::optional<fabric::PacketProof> proof;
};

int tell(int status, const std::string& message) {
  std::cerr << "clustar ab: " << message << "\n";
  return status;
}

json scaling_document(const scaling::ScalingPlan& plan, const Measured& measured) {
  json outcome = scaling::to_json(plan, measured.outcomes, measured.proof);
  json document = report::envelope("ab", scaling::rows(outcome));
  document["command_line"] = report::command_line();
  document["scaling"] = std::move(outcome);
  return document;
}

void tell_of_run(const scaling::ScalingRun& one, int rounds, int done, int total) {
  const json& train = one.run.train;
  std::cerr << fmt::format("[{}/{}] round {}/{}  {:>2} rank{}  {:<17} {:>9} images/s  exposed {:.3f} of {:.3f} s\n",
                           done, total, one.run.round + 1, rounds, one.ranks, one.ranks == 1 ? " " : "s",
                           one.ranks == 1 ? "alone" : ab::to_string(one.run.role),
                           ab::rate_text(train["images_per_second"]), train["exposed_comm_s"].get<double>(),
                           train["train_s"].get<double>());
}

// The testbed lives in here only: whatever happens, it is gone on return.
Result<Measured> measure_scaling(const AbScalingInput& input) {
  const scaling::ScalingPlan& plan = input.plan;
  auto testbed = ab::Testbed::make(plan.base.cluster, plan.base.fabric, plan.ranks.back());
  if (!testbed) return tl::unexpected(testbed.error());
  Measured measured;
  auto proof = testbed->prove();
  if (!proof) return tl::unexpected(proof.error());
  measured.proof = *proof;
  const std::string kernels = testbed->congestion_control();
  scaling::ScalingEvents events;
  events.on_run = [&](const scaling::ScalingRun& one, int done, int total) {
    tell_of_run(one, plan.base.rounds, done, total);
  };
  events.on_round = [&](const scaling::ScalingOutcomes& so_far) {
    Measured until_now{so_far, measured.proof};
    until_now.outcomes.kernel_congestion_control = kernels;
    const auto ok = input.output.write_files(scaling_document(plan, until_now), scaling::page);
    if (!ok) tell(kFailed, "warning: " + ok.error().message);
  };
  events.interrupted = [] { return ab::Interrupt::signal_number(); };
  auto outcomes = scaling::conduct(
      plan, [&](const ab::Plan& at, ab::Role role, int round) { return ab::run_once(at, *testbed, role, round, {}); },
      events);
  if (!outcomes) return tl::unexpected(outcomes.error());
  measured.outcomes = std::move(*outcomes);
  measured.outcomes.kernel_congestion_control = kernels;
  return measured;
}

}  // namespace

CLI::Option* add_ab_scaling_options(CLI::App& command, AbScalingArguments& arguments) {
  const std::string group = "Scaling";
  auto* option = command.add_option("--scaling", arguments.counts,
                                    "Train at each of these numbers of ranks, and set images/s against a straight line "
                                    "from one: 1,2,4,8. The fabric has as many hosts as the last says");
  option->type_name("LIST")->group(group);
  command
      .add_option("--batch-rule", arguments.rule,
                  "Of --scaling. weak: --batch and --lr are those of one rank, and n ranks have n times both (Goyal et "
                  "al. 2017, no warm-up). strong: all ranks share --batch, at --lr")
      ->transform(choice({"weak", "strong"}))
      ->type_name("weak|strong")
      ->default_str("weak")
      ->group(group)
      ->needs(option);
  return option;
}

int run_ab_scaling(const AbScalingInput& input) {
  if (const auto ok = scaling::check(input.plan); !ok) return tell(kUsage, ok.error().message);
  if (const auto ok = check_ab_data(input.plan.base.train); !ok) return tell(kFailed, ok.error().message);
  const ab::Interrupt interrupt;
  const auto measured = measure_scaling(input);
  if (!measured) {
    const bool no_fabric = input.plan.base.fabric && measured.error().code == ErrorCode::kUnavailable;
    return tell(kFailed, measured.error().message +
                             (no_fabric ? "\nWithout a fabric, on loopback: clustar ab --local --scaling ..." : ""));
  }
  const json document = scaling_document(input.plan, *measured);
  input.output.people() << scaling::table(document["scaling"]) << std::flush;
  const auto written = input.output.write(document, scaling::page);
  if (!written) return tell(kFailed, written.error().message);
  const std::string& ended_by = measured->outcomes.ended_by;
  return ended_by.empty() ? kOk : tell(kFailed, ended_by + "; the rounds before that are kept");
}

}  // namespace clustar::bench::cli
