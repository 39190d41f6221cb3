// `clustar conform`: the command line of the conformance tester.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/ab/interrupt.h"
#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/conform/conform.h"
#include "bench/conform/nccl.h"
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
  int connect_device = 0;
  bool list = false;
  bool emulated_gpu = false;
  bool nccl = false;
  std::string nccl_source;
  bool freeze_given = false;
};

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

int to_seconds(double seconds) { return std::max(1, static_cast<int>(std::ceil(seconds))); }

int usage_error(const std::string& message) {
  std::cerr << "clustar conform: " << message << "\n";
  return 2;
}

// Prints the list, and says what the exit status is.
int list(const Arguments& arguments) {
  if (!arguments.nccl) {
    const std::string list = conform::list_checks(arguments.only);
    std::cout << list;
    return list.empty() ? usage_error(fmt::format("no check matches '{}'", arguments.only)) : 0;
  }
  const auto cases = conform::list_nccl_cases(arguments.only);
  if (!cases) return usage_error(cases.error().message);
  std::cout << *cases;
  return kOk;
}

conform::NcclOptions nccl_options(const Arguments& arguments, const std::string& plugin) {
  conform::NcclOptions options;
  options.plugin = plugin;
  options.source = arguments.nccl_source;
  options.only = arguments.only;
  options.timeout = to_seconds(arguments.timeout_s);
  if (arguments.freeze_given) options.freeze = to_seconds(arguments.freeze_s);
  options.death_bound = to_seconds(arguments.death_bound_s);
  options.emulated_gpu = arguments.emulated_gpu;
  return options;
}

Result<conform::Report> run_nccl(const conform::NcclOptions& options, const conform::OnStart& on_start,
                                 const conform::OnEnd& on_end) {
  const ab::Interrupt interrupt;
  return conform::run_over_nccl(options, on_start, on_end, [] { return ab::Interrupt::signal_number(); });
}

int run_conform(const Arguments& arguments) {
  if (arguments.list) return list(arguments);
  if (!arguments.nccl && !arguments.nccl_source.empty()) return usage_error("--nccl-source belongs to --nccl");
  if (arguments.nccl && arguments.version != 0) {
    return usage_error("--version does not go with --nccl: NCCL takes the newest table that it knows");
  }
  if (arguments.nccl && arguments.connect_device != 0) {
    return usage_error("--connect-device does not go with --nccl: NCCL chooses its devices");
  }
  if (arguments.plugin.empty()) {
    return usage_error(fmt::format("--plugin FILE is needed: the .so of an NCCL net plugin{}",
                                   arguments.nccl ? ", or the word socket, which is NCCL's own sockets" : ""));
  }
  conform::Options options;
  options.only = arguments.only;
  // dlopen looks for a bare name on the library path only; a file that is here is meant.
  const bool own = arguments.nccl && arguments.plugin == conform::kSocket;
  const bool here = !own && is_file(arguments.plugin);
  options.env.plugin = here ? absolute_path(arguments.plugin) : arguments.plugin;
  options.env.version = arguments.version;
  options.env.freeze = to_milliseconds(arguments.freeze_s);
  options.env.death_bound = to_milliseconds(arguments.death_bound_s);
  options.env.timeout = to_milliseconds(arguments.timeout_s);
  options.env.connect_device = arguments.connect_device;
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
  const auto on_start = [&](const std::string& name, int version) {
    if (live) out << fmt::format("....  {}{}\r", name, version != 0 ? fmt::format(" v{}", version) : "") << std::flush;
  };
  const auto on_end = [&](const conform::Line& line) {
    out << fmt::format("{}  {}{} ({:.2f} s)\n", conform::to_string(line.finding.outcome), line.name,
                       line.version != 0 ? fmt::format(" v{}", line.version) : "", line.finding.seconds)
        << std::flush;
  };
  const auto report = arguments.nccl ? run_nccl(nccl_options(arguments, options.env.plugin), on_start, on_end)
                                     : conform::run(options, on_start, on_end);
  if (!report) {
    usage_error(report.error().message);
    return report.error().code == ErrorCode::kSystem ? kFailed : kUsage;
  }
  out << conform::to_table(*report) << std::flush;
  if (!arguments.json.empty()) {
    const auto written = report::write_json(report::envelope("conform", conform::to_json(*report)), arguments.json);
    if (!written) {
      std::cerr << "clustar conform: " << written.error().message << "\n";
      return 1;
    }
  }
  if (report->nccl && report->nccl->interrupted_by != 0) {
    std::cerr << fmt::format("clustar conform: interrupted by signal {} ({}) after {} cases\n",
                             report->nccl->interrupted_by, strsignal(report->nccl->interrupted_by),
                             report->lines.size());
    return kFailed;
  }
  return report->count(conform::Outcome::kFail) == 0 ? kOk : kFailed;
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
  auto* freeze =
      command->add_option("--freeze", arguments->freeze_s, "Seconds for which a peer is stopped; with --nccl 2")
          ->check(number_between(0.0, 3600.0))
          ->capture_default_str();
  command->add_option("--death-bound", arguments->death_bound_s, "Seconds within which a dead peer must be an error")
      ->check(number_between(0.1, 600.0))
      ->capture_default_str();
  command->add_option("--timeout", arguments->timeout_s, "Seconds for one check, without freeze and death bound")
      ->check(number_between(0.5, 600.0))
      ->capture_default_str();
  command
      ->add_option("--connect-device", arguments->connect_device,
                   "Who connects does so from this device of the plugin; who listens, on device 0")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  command->add_flag("--emulated-gpu", arguments->emulated_gpu,
                    "Host memory plays a GPU's: sets CLUSTAR_GDR_EMULATE=1 for clustar's plugin; of others only those "
                    "that emulate take it");
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->add_flag("--list", arguments->list, "List the checks with rule and source, and stop");
  command->add_flag("--nccl", arguments->nccl,
                    "NCCL's own host code over the plugin, on an emulated device: collectives, and ranks that die, "
                    "abort or stand still. "
                    "Builds NCCL from source the first time (minutes)");
  command
      ->add_option("--nccl-source", arguments->nccl_source,
                   "With --nccl: NCCL's source [CLUSTAR_NCCL_SOURCE, then the newest nccl-*-src.tar.* in "
                   "shared/data/nccl beside the clone]")
      ->type_name("DIR|TARBALL");
  command->footer(
      "Exit status: 0 all passed (skips allowed), 1 a check failed, 2 wrong usage or not a net plugin.\n"
      "Example: clustar conform --plugin ./libnccl-net-foo.so --freeze 2 --only 'handshake.*,death.*' --json foo.json\n"
      "GPU memory without a GPU: clustar conform --plugin ./libnccl-net-clustar.so --emulated-gpu --only "
      "'gpu.*,memory.*'\n"
      "NCCL itself over it: clustar conform --nccl --plugin ./libnccl-net-foo.so --only 'all_reduce.*,scenario.kill'\n"
      "NCCL over its own sockets, to compare: clustar conform --nccl --plugin socket");
  command->callback([arguments, freeze, &status] {
    arguments->freeze_given = freeze->count() > 0;
    status = run_conform(*arguments);
  });
}

}  // namespace clustar::bench::cli
