// `clustar coordinator`: tells the agents of all hosts one order.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "coflow/control/daemon/options.h"
#include "coflow/control/daemon/toml_files.h"

namespace clustar::bench::cli {
namespace {

namespace control = coflow::control;

constexpr std::uint64_t kBytesPerMbit = 125'000, kMostMbps = 10'000'000;

struct CoordinatorArguments {
  control::DaemonOptions options;
  std::string interval = "100ms", shifts = "on", policy = "turns", log_level = "info", topology, config;
  std::uint64_t line_mbps = 10'000;
  std::vector<std::string> tenants, caps;
};

const std::vector<std::string> kLogLevels{"error", "warn", "info", "debug"};
const std::vector<std::string> kPolicies{"turns", "bssi", "arrival"};

// "100ms", "1.5s"
Result<Duration> interval_of(const std::string& text) {
  double number = 0;
  const auto [unit, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string rest(unit, text.data() + text.size());
  const double seconds = rest == "ms" ? number / 1000 : number;
  if (error != std::errc() || (rest != "ms" && rest != "s") || !(seconds >= 0.01 && seconds <= 10)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--interval: '{}' is no time from 10ms to 10s, as 100ms", text));
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// "research=2.5". Nothing: it is none, or its number is out of its range.
std::optional<std::pair<std::string, double>> named_number(const std::string& text, double least, double most) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals > control::kMostName) return std::nullopt;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data() + equals + 1, end, number);
  if (error != std::errc() || read != end || !(number >= least && number <= most)) return std::nullopt;
  return std::pair(text.substr(0, equals), number);
}

// "" or what is wrong.
std::string read_tenants(const CoordinatorArguments& arguments, control::CoordinatorOptions& into) {
  for (const std::string& text : arguments.tenants) {
    const auto tenant = named_number(text, 0.001, 1000);
    if (!tenant) {
      return fmt::format(
          "--tenant: '{}' is no NAME=WEIGHT with a name of at most {} bytes and a weight from 0.001 to "
          "1000, as research=2",
          text, control::kMostName);
    }
    into.tenants.insert_or_assign(tenant->first, tenant->second);
  }
  for (const std::string& text : arguments.caps) {
    const auto cap = named_number(text, 1, kMostMbps);
    if (!cap) {
      return fmt::format("--cap: '{}' is no NAME=MBPS with a name of at most {} bytes and 1 to {} Mbit/s, as batch=200",
                         text, control::kMostName, kMostMbps);
    }
    into.caps.insert_or_assign(cap->first,
                               static_cast<std::uint64_t>(cap->second * static_cast<double>(kBytesPerMbit)));
  }
  return "";
}

// What the file says of options that the command line does not name. "" or what is wrong.
std::string apply_config(CLI::App& command, const std::string& path) {
  if (path.empty()) return "";
  const auto file = control::read_option_file(path);
  if (!file) return "--config: " + file.error().message;
  for (const control::FileOption& one : *file) {
    const auto at = [&](const std::string& message) {
      return fmt::format("--config: {}:{}: {}", path, one.line, message);
    };
    CLI::Option* option = command.get_option_no_throw("--" + one.name);
    if (option == nullptr || one.name == "config" || one.name == "help") {
      return at(fmt::format("there is no option '{}'; the names are those of `clustar coordinator --help`", one.name));
    }
    if (one.list && option->get_items_expected_max() == 1) return at(one.name + ": one value is allowed, no list");
    if (option->count() > 0) continue;
    try {
      for (const std::string& value : one.values) option->add_result(value);
      if (!one.values.empty()) option->run_callback();
    } catch (const CLI::ParseError& error) {
      return at(error.what());
    }
  }
  return "";
}

// "" or what is wrong.
std::string finish(CoordinatorArguments& arguments) {
  control::DaemonOptions& options = arguments.options;
  const auto interval = interval_of(arguments.interval);
  if (!interval) return interval.error().message;
  options.coordinator.interval = *interval;
  if (const std::string wrong = read_tenants(arguments, options.coordinator); !wrong.empty()) return wrong;
  const auto policy = control::order_policy_of(arguments.policy);
  if (!policy) return "--policy: " + policy.error().message;
  options.coordinator.policy = *policy;
  options.coordinator.shifts = arguments.shifts == "on";
  options.coordinator.bytes_per_second = arguments.line_mbps * kBytesPerMbit;
  const auto level = std::find(kLogLevels.begin(), kLogLevels.end(), arguments.log_level);
  options.verbosity = static_cast<control::Verbosity>(level - kLogLevels.begin());
  if (options.no_key && !options.key_file.empty()) return "--no-key and --key-file exclude each other";
  if (arguments.topology.empty()) return "";
  const auto topology = control::read_topology(arguments.topology, options.coordinator);
  return topology ? "" : "--topology: " + topology.error().message;
}

int coordinate(CLI::App& command, CoordinatorArguments& arguments) {
  const auto complain = [](int status, const std::string& message) {
    std::cerr << "clustar coordinator: " << message << "\n";
    return status;
  };
  if (const std::string wrong = apply_config(command, arguments.config); !wrong.empty()) return complain(kUsage, wrong);
  if (const std::string wrong = finish(arguments); !wrong.empty()) return complain(kUsage, wrong);
#ifdef CLUSTAR_HAVE_COORDINATOR
  const auto ran =
      control::run_daemon(arguments.options, [](const std::string& ports) { std::cout << ports << std::endl; });
  if (ran) return kOk;
  return complain(ran.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed, ran.error().message);
#else
  return complain(
      kFailed,
      "this build has no coordinator: Boost 1.81 or later was not found when it was built; install the Debian "
      "package libboost1.81-dev and build again");
#endif
}

}  // namespace

void add_coordinator(CLI::App& app, int& status) {
  auto& command =
      *app.add_subcommand("coordinator", "Tell the agents of all hosts in which order their jobs' coflows go");
  const auto arguments = std::make_shared<CoordinatorArguments>();
  control::DaemonOptions& options = arguments->options;
  command
      .add_option("--listen", options.listen, "ADDRESS:PORT where agents and standbys connect; port 0: any free one")
      ->capture_default_str();
  command.add_option("--key-file", options.key_file,
                     "The key that agents must know: 16 to 4096 bytes, read by its owner only");
  command.add_flag("--no-key", options.no_key, "Listen on other addresses than loopback without a key");
  command.add_option("--http", options.http, "ADDRESS:PORT of the page, of /state.json and of /healthz; default: none");
  command.add_flag("--http-anyone", options.http_anyone,
                   "Let the page be on other addresses than loopback; it has no password");
  command.add_option("--standby-of", options.coordinator.standby_of,
                     "HOST:PORT of the primary: take over when it is silent for a lease");
  command.add_option("--interval", arguments->interval, "From one order to the next: 10ms to 10s")
      ->capture_default_str();
  command
      .add_option("--lease-intervals", options.coordinator.lease_intervals,
                  "Intervals that an order is good for; then hosts order by themselves")
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  command
      .add_option("--policy", arguments->policy,
                  "turns: jobs in turns; bssi: by what is left at the busiest ports; arrival: as they came")
      ->check(CLI::IsMember(kPolicies))
      ->capture_default_str();
  command
      .add_option("--shifts", arguments->shifts,
                  "on: hold periodic jobs back once, so that one sends while others compute")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command.add_option("--tenant", arguments->tenants, "NAME=WEIGHT, repeated; others have weight 1")
      ->allow_extra_args(false);
  command
      .add_option("--cap", arguments->caps,
                  "NAME=MBPS, repeated: what a tenant's bulk may send at each NIC; others have none")
      ->allow_extra_args(false);
  command.add_option("--topology", arguments->topology,
                     "TOML file of switches, their hosts and uplinks; default: one big switch");
  command.add_option("--line-mbps", arguments->line_mbps, "Speed of NICs whose agents do not know it")
      ->check(CLI::Range(std::uint64_t{1}, kMostMbps))
      ->capture_default_str();
  command.add_option("--agents", options.coordinator.most_agents, "More than so many are refused")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--classes", options.coordinator.most_classes, "More than so many classes are not heard")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command.add_option("--log-level", arguments->log_level, "error, warn, info or debug")
      ->check(CLI::IsMember(kLogLevels))
      ->capture_default_str();
  command.add_option("--config", arguments->config,
                     "TOML file of these options by their names; the command line goes before it");
  command.footer(
      "Prints one line with its ports when it listens; the log goes to standard error. Ends on SIGINT or SIGTERM.\n"
      "Example, with a standby and a page:\n"
      "  A: clustar coordinator --listen 10.0.0.1:7480 --key-file key --http 127.0.0.1:8480\n"
      "  B: clustar coordinator --listen 10.0.0.2:7480 --key-file key --standby-of 10.0.0.1:7480\n"
      "docs/coordinator.md says how agents find it.");
  command.callback([&command, arguments, &status] { status = coordinate(command, *arguments); });
}

}  // namespace clustar::bench::cli
