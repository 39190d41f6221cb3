// `clustar coflow sweep`: policies against max-min fair sharing, over loads and seeds.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/coflow_output.h"
#include "bench/cli/options.h"
#include "bench/coflow/sweep.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

struct SweepArguments {
  coflow::SweepOptions options;
  std::string generate;
  std::string loads = "0.3,0.5,0.7,0.8,0.9,0.95,3";
  CoflowOutput output;
};

int complain_about_sweep(int status, const std::string& message) {
  std::cerr << "clustar coflow sweep: " << message << "\n";
  return status;
}

int run_coflow_sweep(SweepArguments& arguments) {
  const auto generator = coflow::parse_sweep_generator(arguments.generate);
  if (!generator) return complain_about_sweep(kUsage, generator.error().message);
  const auto loads = coflow::parse_loads(arguments.loads);
  if (!loads) return complain_about_sweep(kUsage, loads.error().message);
  arguments.options.generator = *generator;
  arguments.options.loads = *loads;
  if (const auto ok = check(arguments.output); !ok) return complain_about_sweep(kUsage, ok.error().message);
  const auto swept = coflow::sweep(arguments.options, progress(arguments.output));
  if (!swept) {
    return complain_about_sweep(swept.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed,
                                swept.error().message);
  }
  auto document = report::envelope("coflow sweep", coflow::to_json(*swept));
  document.update(coflow::context_json(*swept));
  const auto written = write(arguments.output, coflow::text(*swept), std::move(document));
  return written ? kOk : complain_about_sweep(kFailed, written.error().message);
}

}  // namespace

void add_coflow_sweep(CLI::App& app, int& status) {
  auto& command =
      *app.add_subcommand("sweep", "Generated coflows over loads: by how much policies are better than fair sharing");
  auto arguments = std::make_shared<SweepArguments>();
  coflow::SweepOptions& options = arguments->options;
  command.add_option("--generate", arguments->generate, "What to generate [ports=150,coflows=500]")
      ->type_name("KEY=VALUE,...");
  command
      .add_option("--loads", arguments->loads,
                  "Loads of the busiest port; a seed's coflows are the same at each, their arrivals stretch")
      ->type_name("LOAD,...")
      ->capture_default_str();
  command.add_option("--seeds", options.seeds, "Number of traces for each load: seeds 1 to N")
      ->check(number_between(1, coflow::kMostSeeds))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--policy", options.policies, "Name; several times or all, beside maxmin [match]")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  command.add_option("--gbps", options.port_gbps, "Rate of each port and direction")
      ->check(number_between(0.001, 10000))
      ->capture_default_str();
  add_refill_option(command, options.refill);
  add_output_options(command, arguments->output);
  command.footer(policy_help() +
                 "Exit status: 0 ok, whichever policy is better, 1 failed, 2 wrong usage.\n"
                 "Example: clustar coflow sweep --generate ports=32,coflows=200 --loads 0.5,0.9 --seeds 3 "
                 "--policy match --policy sebf --report sweep.html");
  command.callback([arguments, &status] { status = run_coflow_sweep(*arguments); });
}

}  // namespace clustar::bench::cli
