#include "bench/cli/ab_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/ab/interrupt.h"
#include "bench/ab/reproduction/conduct.h"
#include "bench/ab/reproduction/outcome.h"
#include "bench/ab/testbed.h"
#include "bench/ab/verdict.h"
#include "bench/cli/options.h"
#include "bench/fabric/spec.h"
#include "bench/lossy/machine.h"
#include "bench/report/report.h"
#include "bench/trainer/compute/cards.h"

namespace clustar::bench::cli {
namespace {

namespace reproduction = ab::reproduction;
using nlohmann::json;

// Ours: the plugin's ring over TCP and MLT, and ParaExpress, which chooses its plan.
constexpr std::pair<const char*, const char*> kArms[]{
    {"ring over TCP", "CLUSTAR_TRANSPORT=tcp,CLUSTAR_TCP_CONGESTION=cubic"},
    {"ring over MLT", "CLUSTAR_TRANSPORT=mlt"},
    {"ParaExpress over TCP", "collective=paraexpress,plan=auto,CLUSTAR_TRANSPORT=tcp,CLUSTAR_TCP_CONGESTION=cubic"},
    {"ParaExpress over MLT", "collective=paraexpress,plan=auto,CLUSTAR_TRANSPORT=mlt"}};

void say(const std::string& message) { std::cerr << "clustar ab: " << message << "\n"; }

// The first option that was given and that the table has no use for, in words; "" without one. All else of a training
// is chosen for what was reported.
std::string unused_option(const CLI::App& command) {
  static const std::vector<std::string> used{"--table",  "--table-models",  "--table-card", "--table-steps", "--hosts",
                                             "--rate",   "--rounds",        "--seed",       "--plugin",      "--json",
                                             "--report", "--stall-timeout", "--no-progress"};
  for (const CLI::Option* option : command.get_options()) {
    const auto same = [&](const std::string& name) { return option->check_name(name); };
    if (option->count() == 0 || std::any_of(used.begin(), used.end(), same)) continue;
    return fmt::format("{} is not for --table, which chooses models, layers and network itself; allowed beside it: {}",
                       option->get_name(), fmt::join(used.begin() + 1, used.end(), ", "));
  }
  return {};
}

Result<reproduction::TablePlan> plan_of(const AbTableArguments& arguments, const AbTableInput& input) {
  if (const std::string unused = unused_option(*arguments.command); !unused.empty()) {
    return fail(ErrorCode::kInvalidArgument, unused);
  }
  reproduction::TablePlan plan;
  auto rows = reproduction::choose_rows(arguments.models);
  if (!rows) return tl::unexpected(rows.error());
  plan.rows = std::move(*rows);
  auto baseline = ab::parse_arm("collective=ps", "", input.plugin);
  if (!baseline) return tl::unexpected(baseline.error());
  plan.baseline = std::move(*baseline);
  for (const auto& [name, settings] : kArms) {
    auto arm = ab::parse_arm(settings, name, input.plugin);
    if (!arm) return tl::unexpected(arm.error());
    plan.arms.push_back(std::move(*arm));
  }
  const auto rate = fabric::parse_rate(input.rate);
  if (!rate) return fail(rate.error().code, "--rate: " + rate.error().message);
  if (*rate == 0) return fail(ErrorCode::kInvalidArgument, "--rate off: the table needs a line, e.g. 200M");
  plan.rate_bps = *rate;
  plan.ranks = input.ranks;
  plan.card = arguments.card;
  plan.steps = arguments.steps;
  plan.stall_timeout_s = input.stall_timeout_s;
  plan.seed = input.seed;
  if (input.rounds > 0) plan.rounds = input.rounds;
  if (const auto ok = reproduction::check(plan); !ok) return tl::unexpected(ok.error());
  return plan;
}

json document_of(const reproduction::TablePlan& plan, const reproduction::Surroundings& around, const json& rows) {
  const json results = reproduction::judge(rows, plan.baseline.name);
  json document = report::envelope("ab", results);
  document.update(reproduction::setting(plan, around, results));
  document["table"] = "clustar";
  document["label"] = reproduction::kLabel;
  document["command_line"] = report::command_line();
  return document;
}

// What the trainer reports, and who else was busy meanwhile.
Result<json> watched_run(const ab::Plan& one, ab::Testbed& testbed, ab::Role role, int round) {
  const lossy::OtherCpuWatch watch;
  auto run = ab::run_once(one, testbed, role, round, {});
  if (!run) return tl::unexpected(run.error());
  const auto other = watch.now();
  run->train["other_cpu_cores"] = other ? json(other->used) : json(nullptr);
  run->train["other_cpu_disturbs"] = other ? json(other->disturbs()) : json(nullptr);
  return std::move(run->train);
}

// Returns the document.
Result<json> measure(const reproduction::TablePlan& plan, const AbOutput& output) {
  fabric::FabricSpec spec;
  spec.hosts = plan.ranks;
  spec.rate_bps = plan.rate_bps;
  const auto whole = fabric::checked(spec);
  if (!whole) return tl::unexpected(whole.error());
  auto testbed = ab::Testbed::on_fabric(*whole, plan.ranks);
  if (!testbed) return tl::unexpected(testbed.error());
  auto proof = testbed->prove();
  if (!proof) return tl::unexpected(proof.error());
  const reproduction::Surroundings around{
      .fabric = *whole, .proof = *proof, .kernel_congestion_control = testbed->congestion_control()};
  const reproduction::Hands hands{
      .train = [&](const ab::Plan& one, ab::Role role, int round) { return watched_run(one, *testbed, role, round); },
      .interrupted = [] { return ab::Interrupt::signal_number(); },
      .say = [](const std::string& line) { std::cerr << line << "\n"; },
      // What was measured stays, whatever ends this.
      .on_row =
          [&](const json& rows) {
            const auto ok = output.write_files(document_of(plan, around, rows), reproduction::page);
            if (!ok) say("warning: " + ok.error().message);
          }};
  return document_of(plan, around, reproduction::conduct(plan, hands));
}

}  // namespace

CLI::Option* add_ab_table_options(CLI::App& command, AbTableArguments& arguments) {
  arguments.command = &command;
  const std::string group = "What was reported in 2018 (a row per model; needs root)";
  auto* table = command.add_option(
      "--table", arguments.table,
      "clustar: LR, MLP, AlexNet, VGG-16 and ResNet-50 over a parameter server as of 2018 and over ours, replayed, on "
      "a link that leaves 1.25 times what was reported. --hosts is 16, --rate 50M and --rounds 5 if not given");
  table->check(CLI::IsMember({"clustar"}))->group(group);
  const auto add = [&](const char* name, auto& value, const std::string& what) {
    return command.add_option(name, value, what)->group(group)->needs(table)->capture_default_str();
  };
  add("--table-models", arguments.models, "Comma list of the models [all]")->delimiter(',')->type_name("MODEL");
  add("--table-card", arguments.card, "Card whose published figures computing is estimated from")
      ->check(CLI::IsMember(trainer::card_names()));
  add("--table-steps", arguments.steps, "Steps of each run, at least: short ones get more")
      ->check(CLI::Range(2, 10000));
  return table;
}

int run_ab_table(const AbTableArguments& arguments, const AbTableInput& input) {
  const auto plan = plan_of(arguments, input);
  const auto writable = input.output.check();
  for (const Error* error : {plan ? nullptr : &plan.error(), writable ? nullptr : &writable.error()}) {
    if (error == nullptr) continue;
    say(error->message + "\nRun 'clustar ab --help' for more information.");
    return kUsage;
  }
  if (const auto ok = fabric::check_root(); !ok) return say(ok.error().message), kFailed;
  const ab::Interrupt interrupt;
  if (plan->rounds < ab::kRoundsForVerdict) {
    say(fmt::format("warning: {} of at least {} rounds; there will be no verdict", plan->rounds,
                    ab::kRoundsForVerdict));
  }
  const auto document = measure(*plan, input.output);
  if (!document) return say(document.error().message), kFailed;
  const json& results = document->at("results");
  input.output.people() << reproduction::table(*document) << std::flush;
  if (const auto ok = input.output.write(*document, reproduction::page); !ok) return say(ok.error().message), kFailed;
  const auto failed = [](const json& row) { return !row.at("problem").is_null(); };
  return std::any_of(results.begin(), results.end(), failed) ? kFailed : kOk;
}

}  // namespace clustar::bench::cli
