// clustar ab: parses the command line, conducts the comparison, prints and writes what came out.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/ab/experiment.h"
#include "bench/ab/interrupt.h"
#include "bench/ab/results.h"
#include "bench/cli/ab_jobs.h"
#include "bench/cli/ab_launcher.h"
#include "bench/cli/ab_output.h"
#include "bench/cli/ab_scaling.h"
#include "bench/cli/ab_suite.h"
#include "bench/cli/ab_table.h"
#include "bench/cli/ab_training.h"
#include "bench/cli/ab_view.h"
#include "bench/cli/arms.h"
#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/report/report.h"
#include "transport/base/own_folder.h"

namespace clustar::bench::cli {
namespace {

using nlohmann::json;

constexpr int kMaxRanks = 64;
constexpr double kSuiteTarget = 0.95;  // which an MLP reaches on MNIST in 6 epochs
constexpr int kSuiteEpochs = 40;       // at most, for those that do not

struct Options {
  ab::Plan plan;
  std::string baseline = "CLUSTAR_TCP_SOCKETS=1,CLUSTAR_TCP_CONGESTION=cubic";
  std::string candidate = "CLUSTAR_TCP_SOCKETS=4,CLUSTAR_TCP_CONGESTION=cubic";
  std::string baseline_name;
  std::string candidate_name;
  std::string plugin;
  bool local = false;
  std::string rate = "200M";
  int mtu = 1500;
  std::string buffer;
  std::string uplink;  // rate; empty: one switch
  AbTraining training;
  AbOutput output;
  bool no_progress = false;
  AbSuiteArguments suite;
  AbJobsArguments jobs;
  AbTableArguments table;
  AbScalingArguments scaling;
  AbLauncherArguments launcher;
  CLI::Option* rounds_given = nullptr;
  CLI::Option* hosts_given = nullptr;
  CLI::Option* scenario_given = nullptr;
  CLI::Option* jobs_given = nullptr;
  CLI::Option* table_given = nullptr;
  CLI::Option* scaling_given = nullptr;
  CLI::Option* baseline_given = nullptr;
  CLI::Option* candidate_given = nullptr;
  CLI::Option* limit_given = nullptr;
  CLI::Option* rate_given = nullptr;
  CLI::Option* mtu_given = nullptr;
  CLI::Option* buffer_given = nullptr;
  CLI::Option* uplink_given = nullptr;
};

int complain(int status, const std::string& message) {
  std::cerr << "clustar ab: " << message << "\n";
  if (status == kUsage) std::cerr << "Run 'clustar ab --help' for more information.\n";
  return status;
}

Result<fabric::FabricSpec> fabric_spec(const Options& options) {
  fabric::FabricSpec spec;
  spec.hosts = options.plan.ranks + std::max(options.plan.baseline.helpers(), options.plan.candidate.helpers());
  spec.mtu = options.mtu;
  const auto rate = fabric::parse_rate(options.rate);
  if (!rate) return fail(rate.error().code, "--rate: " + rate.error().message);
  spec.rate_bps = *rate;
  if (!options.buffer.empty()) {
    const auto buffer = fabric::parse_size(options.buffer);
    if (!buffer) return fail(buffer.error().code, "--buffer: " + buffer.error().message);
    if (*buffer == 0) return fail(ErrorCode::kInvalidArgument, "--buffer 0: a port without a queue passes nothing");
    spec.buffer_bytes = *buffer;
  }
  if (!options.uplink.empty()) {
    const auto uplink = fabric::parse_rate(options.uplink);
    if (!uplink) return fail(uplink.error().code, "--uplink: " + uplink.error().message);
    if (*uplink == 0) return fail(ErrorCode::kInvalidArgument, "--uplink: a rate is needed, as 200M");
    spec.spines = 1;
    spec.uplink_rate_bps = *uplink;
  }
  return fabric::checked(spec);
}

Result<ab::Arm> arm(const std::string& option, const std::string& text, const std::string& name,
                    const std::string& plugin) {
  auto parsed = ab::parse_arm(text, name, plugin);
  if (!parsed) return fail(parsed.error().code, option + ": " + parsed.error().message);
  // Settings of another plugin are its own business.
  if (!parsed->opens_plugin() || parsed->plugin == absolute_path(installed_library("libnccl-net-clustar.so"))) {
    const auto ok = ab::check_settings(*parsed, ab::inherited_settings());
    if (!ok) return fail(ok.error().code, option + ": " + ok.error().message);
  }
  return parsed;
}

Result<void> complete_training(Options& options) {
  if (const auto ok = complete_ab_training(options.training, options.plan); !ok) return ok;
  options.output = {trainer::tagged(options.output.json_path, options.plan.train.compute),
                    trainer::tagged(options.output.report_path, options.plan.train.compute)};
  return options.output.check();
}

Result<void> complete_arms(Options& options) {
  auto baseline = arm("--baseline", options.baseline, options.baseline_name, options.plugin);
  if (!baseline) return tl::unexpected(baseline.error());
  auto candidate = arm("--candidate", options.candidate, options.candidate_name, options.plugin);
  if (!candidate) return tl::unexpected(candidate.error());
  options.plan.baseline = *baseline;
  options.plan.candidate = *candidate;
  return {};
}

bool shapes_fabric(const Options& options) {
  return options.rate_given->count() + options.mtu_given->count() + options.buffer_given->count() +
             options.uplink_given->count() >
         0;
}

// Where the ranks run.
Result<void> complete_place(Options& options) {
  if (options.launcher.asked()) {
    if (shapes_fabric(options)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--rate, --mtu, --buffer and --uplink shape a fabric that is made for the comparison; with "
                      "--launcher {} the network is the real one, and arms are settings of the plugin",
                      options.launcher.launcher));
    }
    return complete_ab_launcher(options.launcher, options.plan);
  }
  if (options.local) {
    if (!shapes_fabric(options)) return {};
    return fail(ErrorCode::kInvalidArgument,
                "--rate, --mtu, --buffer and --uplink belong to a fabric; --local has none");
  }
  const auto spec = fabric_spec(options);
  if (!spec) return tl::unexpected(spec.error());
  options.plan.fabric = *spec;
  return {};
}

// Fills the plan; what is wrong with it is kInvalidArgument.
Result<void> complete(Options& options) {
  ab::Plan& plan = options.plan;
  if (const auto ok = complete_arms(options); !ok) return ok;
  for (const auto& [option, arm] :
       {std::pair("--baseline", &plan.baseline), std::pair("--candidate", &plan.candidate)}) {
    const auto ok = ab::check_options(*arm, plan.ranks);
    if (!ok) return fail(ok.error().code, fmt::format("{}: {}", option, ok.error().message));
  }
  if (const auto ok = complete_place(options); !ok) return ok;
  if (plan.train.batch < plan.ranks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--batch {} gives some of the {} ranks nothing to do", plan.train.batch, plan.ranks));
  }
  return complete_training(options);
}

struct Measured {
  ab::Outcomes outcomes;
  std::optional<fabric::PacketProof> proof;
};

ab::Verdict verdict_of(const ab::Outcomes& outcomes) {
  const char* const key = "images_per_second";
  return ab::judge(outcomes.by_round(ab::Role::kBaseline, key), outcomes.by_round(ab::Role::kCandidate, key),
                   outcomes.by_round(ab::Role::kCeiling, key));
}

json document_of(const Options& options, const Measured& measured) {
  const json result = ab::to_json(options.plan, measured.outcomes, verdict_of(measured.outcomes), measured.proof);
  json document = report::envelope("ab", json::array({result}));
  document["command_line"] = report::command_line();
  return document;
}

// The testbed lives in here only: whatever happens, it is gone on return.
Result<Measured> measure(const Options& options) {
  const ab::Plan& plan = options.plan;
  if (const auto ok = check_ab_data(plan.train); !ok) return tl::unexpected(ok.error());
  auto testbed = ab::Testbed::make(plan.cluster, plan.fabric, plan.ranks);
  if (!testbed) return tl::unexpected(testbed.error());
  Measured measured;
  auto proof = testbed->prove();
  if (!proof) return tl::unexpected(proof.error());
  measured.proof = *proof;
  AbView view(plan, !options.no_progress && isatty(STDERR_FILENO) != 0);
  ab::Progress progress{.on_run = [&](int done, int total, const ab::Run& run) { view.on_run(done, total, run); },
                        .on_record = [&](const json& record) { view.on_record(record); },
                        .on_round = {}};
  if (options.output.to_files()) {
    progress.on_round = [&](const ab::Outcomes& so_far) {
      const auto ok = options.output.write_files(document_of(options, {so_far, measured.proof}), ab::html);
      if (!ok) complain(kFailed, "warning: " + ok.error().message);
    };
  }
  auto outcomes = ab::conduct(plan, *testbed, progress);
  view.clear();
  if (!outcomes) return tl::unexpected(outcomes.error());
  measured.outcomes = std::move(*outcomes);
  return measured;
}

// What the suite does not say itself. A target is the default, fixed epochs are asked for by --epochs alone.
int run_suite(Options& options) {
  trainer::TrainConfig& train = options.plan.train;
  if (const auto ok = complete_training(options); !ok) return complain(kUsage, ok.error().message);
  if (options.training.epochs_given->count() == 0 && !train.compute.replays()) {
    if (!train.target_accuracy) train.target_accuracy = kSuiteTarget;
    train.epochs = kSuiteEpochs;
  }
  auto arm = ab::parse_arm("", "plugin", options.plugin);
  if (!arm) return complain(kUsage, "--plugin: " + arm.error().message);
  options.plan.baseline = std::move(*arm);
  AbSuiteInput input{.training = options.plan,
                     .changes = {},
                     .rounds = options.rounds_given->count() > 0 ? options.plan.rounds : 0,
                     .output = options.output,
                     .bar = !options.no_progress && isatty(STDERR_FILENO) != 0};
  if (options.uplink_given->count() > 0) {
    return complain(kUsage, "--uplink is not for --scenario, whose fabrics are its own");
  }
  if (options.hosts_given->count() > 0) input.changes.ranks = options.plan.ranks;
  if (options.rate_given->count() > 0) input.changes.rate = options.rate;
  if (options.buffer_given->count() > 0) input.changes.buffer = options.buffer;
  if (options.mtu_given->count() > 0) input.changes.mtu = options.mtu;
  return run_ab_suite(options.suite, input);
}

int run_jobs(Options& options) {
  if (!options.jobs.play.empty()) return play_ab_job(options.jobs, options.suite.limit_s);
  if (options.baseline_given->count() == 0) options.baseline = "CLUSTAR_SEND_ORDER=fifo";
  if (options.candidate_given->count() == 0) options.candidate = "CLUSTAR_SEND_ORDER=coflow";
  if (options.training.target_given->count() > 0) return complain(kUsage, "--target-accuracy is not for --jobs");
  if (options.training.model_given->count() > 0)
    return complain(kUsage, "--model is not for --jobs, whose file names models");
  if (const auto ok = complete_training(options); !ok) return complain(kUsage, ok.error().message);
  if (const auto ok = complete_arms(options); !ok) return complain(kUsage, ok.error().message);
  for (const ab::Arm* arm : {&options.plan.baseline, &options.plan.candidate}) {
    if (arm->opens_plugin()) continue;
    return complain(kUsage, fmt::format("collective={} is not for --jobs; allowed: settings and plugin=PATH",
                                        arm->options.at("collective")));
  }
  const auto spec = fabric_spec(options);
  if (!spec) return complain(kUsage, spec.error().message);
  return run_ab_jobs(options.jobs, {.training = options.plan,
                                    .fabric = *spec,
                                    .hosts_given = options.hosts_given->count() > 0,
                                    .limit_s = options.suite.limit_s,
                                    .output = options.output,
                                    .ticks = !options.no_progress && isatty(STDERR_FILENO) != 0});
}

// What holds of any comparison is checked of the largest number of ranks.
int run_scaling(Options& options) {
  const auto counts = ab::scaling::parse_counts(options.scaling.counts, kMaxRanks);
  if (!counts) return complain(kUsage, counts.error().message);
  ab::scaling::ScalingPlan plan{.base = options.plan, .ranks = *counts, .rule = options.scaling.rule};
  options.plan = ab::scaling::plan_at(plan, counts->back());
  if (const auto ok = complete(options); !ok) return complain(kUsage, ok.error().message);
  if (const auto ok = find_launcher(options.plan); !ok) return complain(kFailed, ok.error().message);
  ab::Plan completed = options.plan;
  completed.train.batch = plan.base.train.batch;
  completed.train.rate = plan.base.train.rate;
  plan.base = std::move(completed);
  return run_ab_scaling({std::move(plan), options.output});
}

int show(const Options& options, const Measured& measured) {
  const json document = document_of(options, measured);
  options.output.people() << ab::table(document["results"][0]) << std::flush;
  if (const auto ok = options.output.write(document, ab::html); !ok) return complain(kFailed, ok.error().message);
  const ab::Outcomes& outcomes = measured.outcomes;
  if (!outcomes.ended_by.empty()) {
    return complain(kFailed, fmt::format("{}; the rounds before that are kept", outcomes.ended_by));
  }
  return verdict_of(outcomes).outcome == ab::Outcome::kAboveCeiling ? kFailed : kOk;
}

int run(Options& options) {
  if (options.plugin.empty()) options.plugin = installed_library("libnccl-net-clustar.so");
  for (const CLI::Option* other : {options.scenario_given, options.jobs_given, options.table_given}) {
    if (!options.launcher.asked() || other->count() == 0) continue;
    return complain(kUsage, fmt::format("{} makes fabrics of its own; with --launcher {} the network is the real one. "
                                        "Allowed: two arms, also with --scaling",
                                        other->get_name(), options.launcher.launcher));
  }
  if (options.scenario_given->count() > 0) return run_suite(options);
  if (options.jobs_given->count() > 0) return run_jobs(options);
  if (options.table_given->count() > 0) {
    return run_ab_table(options.table, {.plugin = options.plugin,
                                        .rate = options.rate_given->count() > 0 ? options.rate : "50M",
                                        .ranks = options.hosts_given->count() > 0 ? options.plan.ranks : 16,
                                        .rounds = options.rounds_given->count() > 0 ? options.plan.rounds : 0,
                                        .stall_timeout_s = options.plan.stall_timeout_s,
                                        .seed = options.plan.train.seed,
                                        .output = {trainer::tagged(options.output.json_path, "replay"),
                                                   trainer::tagged(options.output.report_path, "replay")}});
  }
  if (options.limit_given->count() > 0 && !options.launcher.asked()) {
    return complain(kUsage, "--time-limit is for --scenario, --jobs and --launcher");
  }
  if (options.launcher.asked()) options.plan.limit_s = options.suite.limit_s;
  if (options.scaling_given->count() > 0) return run_scaling(options);
  if (const auto ok = complete(options); !ok) return complain(kUsage, ok.error().message);
  if (const auto ok = find_launcher(options.plan); !ok) return complain(kFailed, ok.error().message);
  if (options.plan.fabric) {
    if (const auto ok = fabric::check_root(); !ok) {
      return complain(kFailed, ok.error().message + "\nWithout a fabric, on loopback: clustar ab --local ...");
    }
  }
  const ab::Interrupt interrupt;
  if (options.plan.rounds < ab::kRoundsForVerdict) {
    std::cerr << fmt::format("clustar ab: warning: {} of at least {} rounds; there will be no verdict\n",
                             options.plan.rounds, ab::kRoundsForVerdict);
  }
  const auto measured = measure(options);
  if (!measured) {
    std::string message = measured.error().message;
    if (options.plan.fabric && measured.error().code == ErrorCode::kUnavailable) {
      message += "\nWithout a fabric, on loopback: clustar ab --local ...";
    }
    return complain(kFailed, message);
  }
  return show(options, *measured);
}

void add_arm_options(CLI::App& command, Options& options) {
  const std::string group = "Arms";
  options.baseline_given =
      command.add_option("--baseline", options.baseline,
                         "Arm A: NAME=VALUE settings and plugin=PATH, separated by commas; or "
                         "collective=paraexpress, also with plan=PLAN, regions=FILE and helpers=K, as clustar "
                         "train has them; or collective=ps, the baseline of 2018");
  options.baseline_given->group(group)->capture_default_str();
  options.candidate_given = command.add_option("--candidate", options.candidate, "Arm B, in the same way");
  options.candidate_given->group(group)->capture_default_str();
  command.add_option("--baseline-name", options.baseline_name, "Name of the arm in tables [its settings]")
      ->group(group);
  command.add_option("--candidate-name", options.candidate_name, "Name of the arm in tables [its settings]")
      ->group(group);
  command
      .add_option("--plugin", options.plugin,
                  "NCCL net plugin of arms that name none [the one installed with this program]")
      ->group(group);
  options.rounds_given = command.add_option("--rounds", options.plan.rounds,
                                            "Runs of each arm; fewer than 5 give no verdict [6; 10 with --scenario]");
  options.rounds_given->check(CLI::Range(1, 1000))->group(group)->capture_default_str();
}

void add_place_options(CLI::App& command, Options& options) {
  const std::string group = "Place";
  options.hosts_given = command.add_option("--hosts,--ranks", options.plan.ranks,
                                           "Hosts of the fabric, or ranks on loopback; a rank each");
  options.hosts_given->check(CLI::Range(2, kMaxRanks))->group(group)->capture_default_str();
  command.add_flag("--local", options.local, "All ranks on loopback: no root, no fabric, no link rate")->group(group);
  options.rate_given =
      command.add_option("--rate", options.rate, "Rate of each port of the fabric: 200M, 1G; off: no shaping")
          ->type_name("RATE")
          ->group(group)
          ->capture_default_str();
  options.mtu_given = command.add_option("--mtu", options.mtu, "MTU of the fabric, in bytes of an IP packet")
                          ->check(CLI::Range(fabric::kMinMtu, fabric::kMaxMtu))
                          ->group(group)
                          ->capture_default_str();
  options.buffer_given = command
                             .add_option("--buffer", options.buffer,
                                         "Buffer of each switch port: 100k, 64Ki [5 ms of the rate, at least 100k]")
                             ->type_name("BYTES")
                             ->group(group);
  options.uplink_given =
      command
          .add_option("--uplink", options.uplink,
                      "Instead of one switch two, with half of the hosts each, and a link of this rate to a third "
                      "between them")
          ->type_name("RATE")
          ->group(group);
}

}  // namespace

void add_ab(CLI::App& app, int& status) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("ab", "Compare two transports or settings by training over both, in turns");
  add_arm_options(command, *options);
  add_place_options(command, *options);
  add_ab_training_options(command, options->training, options->plan);
  options->scenario_given = add_ab_suite_options(command, options->suite);
  options->scenario_given->excludes("--baseline")->excludes("--candidate")->excludes("--local");
  options->limit_given = command.get_option("--time-limit");
  options->jobs_given = add_ab_jobs_options(command, options->jobs);
  options->jobs_given->excludes("--scenario")->excludes("--local");
  options->table_given = add_ab_table_options(command, options->table);
  for (const char* other : {"--scenario", "--jobs"}) {
    options->table_given->excludes(other);
  }
  add_ab_launcher_options(command, options->launcher);
  options->launcher.given->excludes("--local");
  options->scaling_given = add_ab_scaling_options(command, options->scaling);
  options->scaling_given->excludes("--table")->excludes("--scenario")->excludes("--jobs")->excludes("--hosts");
  command.add_option("--json", options->output.json_path, "Write the results to this file ('-' = standard output)");
  command
      .add_option(
          "--report", options->output.report_path,
          "Write a report with plots, one HTML file ('-' = standard output). clustar report draws it again from the "
          "JSON")
      ->type_name("FILE.html");
  command.add_flag("--no-progress", options->no_progress, "No bar within a run, only a line after it");
  command.footer(
      "The arms take turns (A B, B A, ...) with the same seed and data in each round, and every round also trains\n"
      "without communication: a gain above that is a failure. The fabric (needs root) is made for the comparison and\n"
      "removed after it. Exit status: 0 measured, 1 failed or above the ceiling, 2 wrong usage.\n"
      "Example: clustar ab --hosts 4 --rate 200M --baseline 'CLUSTAR_TCP_SOCKETS=1,CLUSTAR_TCP_CONGESTION=cubic' \\\n"
      "    --candidate 'CLUSTAR_TCP_SOCKETS=4,CLUSTAR_TCP_CONGESTION=cubic' --report ab.html\n"
      "Jobs that share a fabric: clustar ab --jobs jobs.toml --rate 200M --baseline CLUSTAR_SEND_ORDER=fifo \\\n"
      "    --candidate CLUSTAR_SEND_ORDER=coflow --rounds 6 --json jobs.json --report jobs.html\n"
      "What was reported in 2018: clustar ab --table clustar --json table.json --report table.html\n"
      "More and more ranks: clustar ab --scaling 1,2,4,8 --rate 40M --model vgg16 --compute estimate=v100 \\\n"
      "    --time-scale 0.5 --byte-scale 512 --batch 32 --examples 320 --json scaling.json --report scaling.html\n"
      "On a cluster: clustar ab --launcher mpirun --launcher-args '--hostfile hosts --map-by node' --root node1 \\\n"
      "    --ranks 8 --baseline CLUSTAR_TRANSPORT=tcp --candidate CLUSTAR_TRANSPORT=verbs --json ab.json\n"
      "Training in trouble: clustar ab --scenario clean,gray --data MNIST --json ab.json --report ab.html");
  command.callback([options, &status] { status = run(*options); });
}

}  // namespace clustar::bench::cli
