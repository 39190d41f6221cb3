// `clustar aggregator`: a helper of ParaExpress.
#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/fabric/spec.h"
#include "bench/report/report.h"
#include "bench/trainer/aggregator.h"

namespace clustar::bench::cli {
namespace {

struct AggregatorArguments {
  trainer::AggregatorOptions options;
  std::string memory = "16GiB", json_path;
  int stall_timeout_s = 120;
};

std::atomic<bool> stop_aggregating{false};
void on_aggregators_end(int) { stop_aggregating = true; }

int aggregate(AggregatorArguments& arguments) {
  const auto complain = [](int status, const std::string& message) {
    std::cerr << "clustar aggregator: " << message << "\n";
    return status;
  };
  trainer::AggregatorOptions& options = arguments.options;
  if (options.helper >= options.helpers) {
    return complain(kUsage, fmt::format("--helper {} does not exist among {}; allowed: 0 to {}", options.helper,
                                        options.helpers, options.helpers - 1));
  }
  const auto memory = fabric::parse_size(arguments.memory);
  if (!memory || *memory == 0)
    return complain(kUsage, "--memory: '" + arguments.memory + "' is not a size such as 16GiB");
  options.most_bytes = *memory;
  options.stall_timeout = std::chrono::seconds(arguments.stall_timeout_s);
  if (const auto writable = report::check_writable(arguments.json_path); !writable) {
    return complain(kUsage, "--json: " + writable.error().message);
  }
  // Before, a signal ends it at once.
  options.on_met = [] {
    struct sigaction action {};
    action.sa_handler = on_aggregators_end;
    for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  };
  const auto report = trainer::run_aggregator(options, stop_aggregating);
  if (!report && !stop_aggregating) return complain(kFailed, report.error().message);
  const paraexpress::HelperReport done = report.value_or(paraexpress::HelperReport{});
  if (!arguments.json_path.empty()) {
    const nlohmann::json results{{"helper", options.helper},
                                 {"operations", done.operations},
                                 {"bytes_received", done.traffic.bytes_received},
                                 {"bytes_sent", done.traffic.bytes_sent}};
    const auto written = report::write_json(report::envelope("aggregator", results), arguments.json_path);
    if (!written) return complain(kFailed, "--json: " + written.error().message);
    return kOk;
  }
  if (!report) {
    std::cout << "helper " << options.helper << ": stopped; the ranks go on without it\n";
    return kOk;
  }
  std::cout << fmt::format("helper {}: {} operations, {:.1f} MiB received, {:.1f} MiB sent\n", options.helper,
                           done.operations, static_cast<double>(done.traffic.bytes_received) / (1 << 20),
                           static_cast<double>(done.traffic.bytes_sent) / (1 << 20));
  return kOk;
}

}  // namespace

void add_aggregator(CLI::App& app, int& status) {
  auto& command = *app.add_subcommand("aggregator", "Add up for ParaExpress's ranks: a helper, with a NIC of its own");
  const auto arguments = std::make_shared<AggregatorArguments>();
  trainer::AggregatorOptions& options = arguments->options;
  command.add_option("--root", options.root, "HOST:PORT of rank 0, as the ranks' --helpers-root")->required();
  command.add_option("--helper", options.helper, "Which one it is, from 0")
      ->check(CLI::Range(0, static_cast<int>(paraexpress::kMostHelpers) - 1))
      ->required();
  command.add_option("--helpers", options.helpers, "How many there are, as the ranks' --helpers")
      ->check(CLI::Range(1, static_cast<int>(paraexpress::kMostHelpers)))
      ->required();
  command.add_option("--ranks", options.ranks, "How many ranks there are")
      ->check(CLI::Range(1, static_cast<int>(paraexpress::kMostRanks)))
      ->required();
  command.add_option("--memory", arguments->memory, "An operation that needs more is refused")->capture_default_str();
  command
      .add_option("--stall-timeout", arguments->stall_timeout_s,
                  "Seconds that it waits for ranks to connect, and within an operation")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command.add_option("--json", arguments->json_path, "Write what it did to this file; - is standard output");
  command.footer(
      "It ends with the ranks. Where it dies or stands still, they go on without it. Its transport is that of\n"
      "CLUSTAR_TRANSPORT, as theirs.\n"
      "Example, two ranks and one helper on three hosts:\n"
      "  A: clustar train --rank 0 --size 2 --root A:29500 --collective paraexpress --helpers 1 --helpers-root "
      "A:29501\n"
      "  B: clustar train --rank 1 --size 2 --root A:29500 --collective paraexpress --helpers 1 --helpers-root "
      "A:29501\n"
      "  C: clustar aggregator --helper 0 --helpers 1 --ranks 2 --root A:29501\n"
      "On one machine, helpers included: clustar train --ranks 4 --collective paraexpress --helpers 2");
  command.callback([arguments, &status] { status = aggregate(*arguments); });
}

}  // namespace clustar::bench::cli
