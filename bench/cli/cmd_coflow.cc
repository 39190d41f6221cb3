// `clustar coflow replay`: a trace of coflows under one policy or several, in simulated time.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cli/coflow_output.h"
#include "bench/cli/coflow_source.h"
#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/coflow/compare.h"
#include "bench/coflow/render.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  coflow::CompareOptions options;
  CoflowSource source;
  bool own_rate = false;
  CoflowOutput output;
};

int complain(int status, const std::string& message) {
  std::cerr << "clustar coflow replay: " << message << "\n";
  return status;
}

int run_replay(Arguments& arguments) {
  if (const auto ok = check(arguments.source); !ok) return complain(kUsage, ok.error().message);
  if (arguments.own_rate && arguments.options.rules != "exact") {
    return complain(kUsage, "--gbps is for --rules exact; CoflowSim's ports have 1 MiB in 8 ms");
  }
  const auto source = read_source(arguments.source);
  if (!source) return complain(kUsage, source.error().message);
  if (arguments.options.per_coflow && arguments.output.json_path.empty()) {
    return complain(kUsage, "--per-coflow is for what --json writes; name a file there");
  }
  if (const auto ok = check(arguments.output); !ok) return complain(kUsage, ok.error().message);
  const auto comparison = coflow::compare(*source, arguments.options, progress(arguments.output));
  if (!comparison) {
    return complain(comparison.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed,
                    comparison.error().message);
  }
  auto document = report::envelope("coflow replay", coflow::to_json(*comparison));
  document["workload"] = coflow::workload_json(*comparison);
  const auto written = write(arguments.output, coflow::text(*comparison), std::move(document));
  return written ? kOk : complain(kFailed, written.error().message);
}

}  // namespace

void add_coflow(CLI::App& app, int& status) {
  auto* coflow_command = app.add_subcommand(
      "coflow", "Coflow scheduling: replay a trace under policies, simulated, or play it over real transports");
  coflow_command->require_subcommand(1);
  coflow_command->footer("Example: clustar coflow replay --generate ports=16,coflows=200,load=0.95 --policy all");
  add_coflow_play(*coflow_command, status);
  add_coflow_replay(*coflow_command, status);
  add_coflow_sweep(*coflow_command, status);
}

void add_coflow_replay(CLI::App& app, int& status) {
  auto& command = *app.add_subcommand("replay", "Replay a trace of coflows under policies, and compare them");
  auto arguments = std::make_shared<Arguments>();
  coflow::CompareOptions& options = arguments->options;
  add_source_options(command, arguments->source);
  add_muri_option(command, arguments->source);
  command.add_option("--policy", options.policies, "Name; several times or all to compare [match]")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  command
      .add_option("--rules", options.rules,
                  "exact: arrivals at their time; coflowsim: that simulator's ticks of 8 ms and "
                  "epochs of 10.24 s; coflowsim-stock: with its rounding errors, too")
      ->check(CLI::IsMember({"exact", "coflowsim", "coflowsim-stock"}))
      ->capture_default_str();
  auto* rate = command.add_option("--gbps", options.port_gbps, "Rate of each port and direction, with --rules exact")
                   ->check(number_between(0.001, 10000))
                   ->capture_default_str();
  add_refill_option(command, options.refill);
  add_output_options(command, arguments->output);
  command.add_flag(
      "--per-coflow", options.per_coflow,
      "Each coflow's completion time and slowdown in the JSON, too; of a job, its place among jobs is their label");
  command.footer(
      policy_help() +
      "Exit status: 0 ok, 1 failed, 2 wrong usage or trace.\n"
      "Example: clustar coflow replay FB2010-1Hr-150-0.txt --policy maxmin --policy match --report ccts.html\n"
      "         clustar coflow replay --generate ports=16,coflows=200,load=0.95 --policy all\n"
      "         clustar coflow replay --job zero3.csv --job gpt.csv:duty=0.3,iterations=50 --gbps 100 "
      "--policy maxmin --policy match");
  command.callback([arguments, rate, &status] {
    arguments->own_rate = rate->count() > 0;
    status = run_replay(*arguments);
  });
}

}  // namespace clustar::bench::cli
