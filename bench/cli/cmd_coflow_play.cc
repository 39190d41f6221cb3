// `clustar coflow play`: a workload's coflows as real bytes between the hosts of a fabric.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/ab/interrupt.h"
#include "bench/cli/arms.h"
#include "bench/cli/coflow_output.h"
#include "bench/cli/coflow_source.h"
#include "bench/cli/options.h"
#include "bench/coflow/live/play.h"
#include "bench/fabric/spec.h"
#include "bench/report/report.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/api/settings.h"

namespace clustar::bench::cli {
namespace {

namespace live = coflow::live;

struct PlayArguments {
  CoflowSource source;
  live::PlayOptions options;
  std::string arms = "fair,coflow,unknown";
  std::string rate = "25M";
  std::string buffer;
  std::string environment;
  CoflowOutput output;
};

int complain_about_play(int status, const std::string& message) {
  std::cerr << "clustar coflow play: " << message << "\n";
  return status;
}

Result<void> read_options(PlayArguments& arguments) {
  if (const auto ok = check(arguments.source); !ok) return ok;
  const auto arms = live::parse_arms(arguments.arms);
  if (!arms) return tl::unexpected(arms.error());
  arguments.options.arms = *arms;
  const auto rate = fabric::parse_rate(arguments.rate);
  if (!rate) return fail(rate.error().code, "--rate: " + rate.error().message);
  if (*rate < 1'000'000) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--rate: '{}'; allowed: 1M or more", arguments.rate));
  }
  arguments.options.rate_bps = *rate;
  if (!arguments.buffer.empty()) {
    const auto buffer = fabric::parse_size(arguments.buffer);
    if (!buffer) return fail(buffer.error().code, "--buffer: " + buffer.error().message);
    arguments.options.buffer_bytes = *buffer;
  }
  const auto environment = parse_environment(arguments.environment);
  if (!environment) return fail(environment.error().code, "--env: " + environment.error().message);
  for (const auto& [name, value] : *environment) {
    for (const char* own :
         {"CLUSTAR_SEND_ORDER", "CLUSTAR_SEND_DSCP", "CLUSTAR_JOB", "CLUSTAR_SOCKET_IFNAME", "CLUSTAR_LINE_MBPS"}) {
      if (name == own)
        return fail(ErrorCode::kInvalidArgument, fmt::format("--env: {} is the arms' own; allowed: all others", name));
    }
    arguments.options.environment[name] = value;
  }
  const auto known = load_settings(arguments.options.environment);
  if (!known) return fail(known.error().code, "--env: " + known.error().message);
  for (const live::Arm& arm : *arms) {
    if (arm.classes && known->get<TransportSettings>().transport != "tcp") {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--arms: {} is for TCP; allowed: with --env CLUSTAR_TRANSPORT=tcp", arm.name));
    }
  }
  if (arguments.options.per_coflow && arguments.output.json_path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--per-coflow is for what --json writes; name a file there");
  }
  return check(arguments.output);
}

int run_coflow_play(PlayArguments& arguments) {
  if (const auto ok = read_options(arguments); !ok) return complain_about_play(kUsage, ok.error().message);
  const auto source = read_source(arguments.source);
  if (!source) return complain_about_play(kUsage, source.error().message);
  const ab::Interrupt interrupt;
  arguments.options.stop = [] { return ab::Interrupt::signal_number() != 0; };
  const auto performance = live::perform(*source, arguments.options, progress(arguments.output));
  if (!performance) {
    return complain_about_play(performance.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed,
                               performance.error().message);
  }
  auto document = report::envelope("coflow play", live::to_json(*performance));
  document["settings"] = arguments.options.environment;
  document["workload"] = live::workload_json(*performance);
  const auto written = write(arguments.output, live::text(*performance), std::move(document));
  if (!written) return complain_about_play(kFailed, written.error().message);
  return performance->incomplete.empty() ? kOk : complain_about_play(kFailed, performance->incomplete);
}

}  // namespace

void add_coflow_play(CLI::App& app, int& status) {
  auto& command = *app.add_subcommand(
      "play",
      "Play a workload with real bytes between the hosts of a fabric, and compare it with the simulator; needs root");
  auto arguments = std::make_shared<PlayArguments>();
  live::PlayOptions& options = arguments->options;
  add_source_options(command, arguments->source);
  add_muri_option(command, arguments->source);
  command
      .add_option("--arms", arguments->arms, "What it is played over, in turns; the others are compared with the first")
      ->type_name("ARM,...")
      ->capture_default_str();
  command.add_option("--rounds", options.rounds, "How often each arm plays")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--rate", arguments->rate, "Rate of each host's line, in bit/s")
      ->type_name("RATE")
      ->capture_default_str();
  command
      .add_option("--gbps", options.trace_gbps, "The rate that the workload is for: sizes shrink to --rate, times stay")
      ->check(number_between(0.001, 10000))
      ->capture_default_str();
  command
      .add_option(
          "--mtu", options.mtu,
          "MTU of the fabric, in bytes of an IP packet: longer packets are fewer, so that faster lines fit this "
          "machine's processors")
      ->check(CLI::Range(fabric::kMinMtu, fabric::kMaxMtu))
      ->type_name("BYTES")
      ->capture_default_str();
  command
      .add_option("--buffer", arguments->buffer,
                  "Buffer of a switch port towards its host, in bytes: 100k [5 ms of the rate, at least 100k]")
      ->type_name("BYTES");
  command
      .add_option("--env", arguments->environment,
                  "Settings of clustar's arms: CLUSTAR_TRANSPORT=mlt,CLUSTAR_SEND_PACE=95")
      ->type_name("LIST");
  command.add_flag("--per-coflow", options.per_coflow, "Each coflow's completion time and slowdown in the JSON, too");
  add_json_options(command, arguments->output);
  std::string footer = "Arms:\n";
  for (const live::Arm& arm : live::arms()) footer += fmt::format("  {:<18}{}\n", arm.name, arm.what);
  command.footer(footer +
                 "Exit status: 0 ok, 1 failed, 2 wrong usage or trace.\n"
                 "Example: clustar coflow play --generate ports=16,coflows=200,load=0.95 --rounds 3\n"
                 "         clustar coflow play --job zero3.csv:ranks_per_port=64 --job "
                 "gpt.csv:ranks_per_port=64,iterations=5 --arms fair,coflow,by-size\n"
                 "         clustar coflow play muri/trace1.csv --muri ports=4,gpus_per_port=8,scale=100000,jobs=16 "
                 "--gbps 100 --rate 100M --arms fair,coflow");
  command.callback([arguments, &status] { status = run_coflow_play(*arguments); });
}

}  // namespace clustar::bench::cli
