// `clustar conform`: the command line of the conformance tester.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/conform/conform.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  std::string plugin;
  std::string only;
  std::string json;
  int version = 0;
  double freeze_s = 60;
  double death_bound_s = 10;
  double timeout_s = 30;
  bool list = false;
  bool emulated_gpu = false;
};

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

int usage_error(const std::string& message) {
  std::cerr << "clustar conform: " << message << "\n";
  return 2;
}

int run_conform(const Arguments& arguments) {
  if (arguments.list) {
    const std::string list = conform::list_checks(arguments.only);
    std::cout << list;
    return list.empty() ? usage_error(fmt::format("no check matches '{}'", arguments.only)) : 0;
  }
  if (arguments.plugin.empty()) return usage_error("--plugin FILE is needed: the .so of an NCCL net plugin");
  conform::Options options;
  options.only = arguments.only;
  // dlopen looks for a bare name on the library path only; a file that is here is meant.
  const bool is_file = std::filesystem::is_regular_file(arguments.plugin);
  options.env.plugin = is_file ? std::filesystem::absolute(arguments.plugin).string() : arguments.plugin;
  options.env.version = arguments.version;
  options.env.freeze = to_milliseconds(arguments.freeze_s);
  options.env.death_bound = to_milliseconds(arguments.death_bound_s);
  options.env.timeout = to_milliseconds(arguments.timeout_s);
  options.env.emulated_gpu = arguments.emulated_gpu;
  // How our own plugin is told; others do not know it.
  if (arguments.emulated_gpu) setenv("CLUSTAR_GDR_EMULATE", "1", 1);
  // JSON on standard output stays parseable: people's lines go to standard error then.
  std::ostream& out = arguments.json == "-" ? std::cerr : std::cout;
  const bool live = isatty(STDOUT_FILENO) != 0 && arguments.json != "-";
  // Found out now, not after a minute of checks.
  if (const auto writable = report::check_writable(arguments.json); !writable) {
    return usage_error("--json: " + writable.error().message);
  }
  const auto on_start = [&](const conform::Check& check, int version) {
    if (live) out << fmt::format("....  {} v{}\r", check.name, version) << std::flush;
  };
  const auto on_end = [&](const conform::Line& line) {
    out << fmt::format("{}  {} v{} ({:.2f} s)\n", conform::to_string(line.finding.outcome), line.check.name,
                       line.version, line.finding.seconds)
        << std::flush;
  };
  const auto report = conform::run(options, on_start, on_end);
  if (!report) return usage_error(report.error().message);
  out << conform::to_table(*report) << std::flush;
  if (!arguments.json.empty()) {
    const auto written = report::write_json(report::envelope("conform", conform::to_json(*report)), arguments.json);
    if (!written) {
      std::cerr << "clustar conform: " << written.error().message << "\n";
      return 1;
    }
  }
  return report->count(conform::Outcome::kFail) == 0 ? 0 : 1;
}

}  // namespace

void add_conform(CLI::App& app, int& status) {
  auto* command =
      app.add_subcommand("conform", "Test any NCCL net plugin against what NCCL relies on; no GPU and no NCCL needed");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--plugin", arguments->plugin, "The plugin: a path, or a name as in NCCL_NET_PLUGIN")
      ->type_name("FILE");
  command->add_option("--only", arguments->only, "Comma list of checks: a glob of the name or a part of it")
      ->type_name("PATTERN");
  command
      ->add_option("--version", arguments->version, "Test this table only (default: all exported; long checks newest)")
      ->check(CLI::Range(6, 12));
  command->add_option("--freeze", arguments->freeze_s, "Seconds for which a peer is stopped")
      ->check(number_between(0.0, 3600.0))
      ->capture_default_str();
  command->add_option("--death-bound", arguments->death_bound_s, "Seconds within which a dead peer must be an error")
      ->check(number_between(0.1, 600.0))
      ->capture_default_str();
  command->add_option("--timeout", arguments->timeout_s, "Seconds for one check, without freeze and death bound")
      ->check(number_between(0.5, 600.0))
      ->capture_default_str();
  command->add_flag("--emulated-gpu", arguments->emulated_gpu,
                    "Host memory plays a GPU's: sets CLUSTAR_GDR_EMULATE=1 for clustar's plugin; of others only those "
                    "that emulate take it");
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->add_flag("--list", arguments->list, "List the checks with rule and source, and stop");
  command->footer(
      "Exit status: 0 all passed (skips allowed), 1 a check failed, 2 wrong usage or not a net plugin.\n"
      "Example: clustar conform --plugin ./libnccl-net-foo.so --freeze 2 --only 'handshake.*,death.*' --json foo.json\n"
      "GPU memory without a GPU: clustar conform --plugin ./libnccl-net-clustar.so --emulated-gpu --only "
      "'gpu.*,memory.*'");
  command->callback([arguments, &status] { status = run_conform(*arguments); });
}

}  // namespace clustar::bench::cli
