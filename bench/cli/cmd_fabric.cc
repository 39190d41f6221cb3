// `clustar fabric`: the command line of the emulated fabric.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/commands.h"
#include "bench/cli/fabric_command.h"
#include "bench/cli/options.h"
#include "bench/fabric/fabric.h"
#include "bench/fabric/render.h"
#include "bench/fabric/render_ports.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
using nlohmann::json;

int fabric_error(const Error& error) {
  std::cerr << "clustar fabric: " << error.message << "\n";
  return error.code == ErrorCode::kInvalidArgument ? kUsage : kFailed;
}

int fabric_usage_error(const std::string& message) { return fabric_error({ErrorCode::kInvalidArgument, message}); }

// Found out before anything is made or removed.
bool cannot_write(const std::string& path, int& status) {
  if (path.empty() || path == "-" || std::ofstream(path, std::ios::app)) return false;
  status = fabric_usage_error(fmt::format("--json: cannot write '{}': {}", path, std::strerror(errno)));
  return true;
}

// The text gives way to the JSON when that was asked for on standard output.
int show_fabric(const FabricArguments& arguments, const std::string& text, const json& results) {
  (arguments.json_path == "-" ? std::cerr : std::cout) << text << std::flush;
  if (arguments.json_path.empty()) return kOk;
  const auto written = report::write_json(report::envelope("fabric", results), arguments.json_path);
  return written ? kOk : fabric_error(written.error());
}

CLI::App& add_fabric_command(CLI::App& app, const std::string& name, const std::string& what,
                             FabricArguments& arguments) {
  CLI::App& command = *app.add_subcommand(name, what);
  command.add_option("--name", arguments.spec.name, "Name of the fabric, if there are several")->capture_default_str();
  return command;
}

void add_fabric_force(CLI::App& command, FabricArguments& arguments) {
  command.add_flag("--force", arguments.force, "Also where another user made the fabric of that name");
}

void add_fabric_json(CLI::App& command, FabricArguments& arguments) {
  command.add_option("--json", arguments.json_path, "Write the results to this file; - is standard output")
      ->type_name("FILE");
}

namespace {

// What a shell says of a command that cannot be run, and of one that is not there.
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

int down(const FabricArguments& arguments) {
  int status = kOk;
  if (cannot_write(arguments.json_path, status)) return status;
  std::string text;
  json results = json::array();
  const auto names = arguments.all ? fabric::Fabric::names() : std::vector<std::string>{arguments.spec.name};
  for (const std::string& name : names) {
    const auto removed = fabric::Fabric::remove(name, arguments.force ? fabric::Others::kTake : fabric::Others::kKeep);
    if (!removed) {
      status = fabric_error(removed.error());
      continue;
    }
    text += fabric::removed_text(name, *removed);
    results.push_back(fabric::removed_json(name, *removed));
  }
  if (names.empty()) text = "there is no fabric; nothing to remove\n";
  const int shown = show_fabric(arguments, text, results);
  return std::max(status, shown);
}

int show_status(const FabricArguments& arguments) {
  int status = kOk;
  if (cannot_write(arguments.json_path, status)) return status;
  if (arguments.watch_s > 0) {
    return watch_fabric(arguments.spec.name, arguments.watch_s, arguments.json_path);
  }
  const auto there = fabric::Fabric::status_of(arguments.spec.name);
  if (!there) return fabric_error(there.error());
  std::optional<fabric::PacketProof> proof;
  if (!arguments.no_probe && there->problems.empty()) {
    const auto fabric = fabric::Fabric::find(arguments.spec.name);
    if (!fabric) return fabric_error(fabric.error());
    const auto proved = fabric->prove();
    if (!proved) return fabric_error(proved.error());
    proof = *proved;
  }
  status = show_fabric(arguments, fabric::status_text(*there, proof), fabric::status_json(*there, proof));
  const bool good = there->problems.empty() && (!proof || proof->per_packet()) && fabric::super_packets(*there) == 0;
  return good ? status : kFailed;
}

// What comes after the first "--", unchanged.
std::vector<std::string> command_after_dashes() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> command;
  bool after = false;
  for (std::string argument; std::getline(in, argument, '\0');) {
    if (after) command.push_back(argument);
    after = after || argument == "--";
  }
  return command;
}

Result<int> parse_host(const std::string& text) {
  const char* const digits = text.c_str() + (text.starts_with('h') ? 1 : 0);
  const char* const end = text.c_str() + text.size();
  int host = -1;
  const auto [rest, error] = std::from_chars(digits, end, host);
  if (error == std::errc() && rest == end && host >= 0) return host;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not a host; allowed: a number from 0, or h0, h1, ...", text));
}

int exec(const FabricArguments& arguments) {
  const std::vector<std::string> command = command_after_dashes();
  if (command.empty()) return fabric_usage_error("the command comes after --, as in: clustar fabric exec 0 -- ip addr");
  const auto parsed = parse_host(arguments.host);
  if (!parsed) return fabric_error(parsed.error());
  const int host = *parsed;
  const auto there = fabric::Fabric::status_of(arguments.spec.name);
  if (!there) return fabric_error(there.error());
  const auto is_it = [&](const fabric::PortStatus& port) { return port.host == host; };
  if (std::none_of(there->ports.begin(), there->ports.end(), is_it)) {
    return fabric_usage_error(fmt::format("the fabric '{}' has no host {}; allowed: 0 to {}", arguments.spec.name, host,
                                          there->spec.hosts - 1));
  }
  const auto entered = fabric::enter_namespace_with_sys(fabric::host_namespace(arguments.spec.name, host));
  if (!entered) return fabric_error(entered.error());
  std::vector<std::string> owned = command;
  std::vector<char*> argv;
  for (std::string& argument : owned) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // The command takes this process's place: its signals, its terminal and its exit status need no go-between.
  execvp(argv[0], argv.data());
  const int why = errno;
  std::cerr << fmt::format("clustar fabric: cannot run '{}': {}\n", command[0], std::strerror(why));
  return why == ENOENT ? kNotFound : kCannotRun;
}

void add_down(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status) {
  CLI::App& command = add_fabric_command(
      app, "down", "Remove the fabric and end what runs in it, also after a crash or a half-made one", *arguments);
  command.add_flag("--all", arguments->all, "Every fabric of clustar on this machine");
  add_fabric_force(command, *arguments);
  add_fabric_json(command, *arguments);
  command.footer("Example: clustar fabric down");
  command.callback([arguments, &status] { status = down(*arguments); });
}

void add_status(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status) {
  CLI::App& command =
      add_fabric_command(app, "status", "Show ports and counters, and prove that queues hold packets", *arguments);
  command.add_flag("--no-probe", arguments->no_probe, "No burst of traffic, and so no proof");
  command
      .add_option("--watch", arguments->watch_s,
                  "Show it every so many seconds, without a probe, until Ctrl-C; --json: one object per line")
      ->check(number_between(0.1, 3600))
      ->type_name("SECONDS");
  add_fabric_json(command, *arguments);
  command.footer(
      "Exit status: 0 whole and, when probed, per packet; 1 otherwise.\nExample: clustar fabric status --json f.json");
  command.callback([arguments, &status] { status = show_status(*arguments); });
}

void add_exec(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status) {
  CLI::App& command = add_fabric_command(app, "exec", "Run a command on a host", *arguments);
  command.add_option("HOST", arguments->host, "0 or h0, 1 or h1, ...")->required();
  command.add_option("CMD", arguments->command, "The command and its arguments, after --")->required();
  command.footer(
      "Input, output and exit status are the command's own (127: there is no such command).\n"
      "Example: clustar fabric exec 0 -- ip addr");
  command.callback([arguments, &status] { status = exec(*arguments); });
}

}  // namespace

void add_fabric(CLI::App& app, int& status) {
  auto arguments = std::make_shared<FabricArguments>();
  CLI::App& command = *app.add_subcommand("fabric", "Emulate hosts and a switch on this machine; needs root");
  command.require_subcommand(0, 1);
  // CLI11's own message would not say what is allowed.
  command.callback([&command, &status] {
    if (command.get_subcommands().empty())
      status = fabric_usage_error("say what to do; allowed: up, down, set, status, exec, selftest");
  });
  add_fabric_up(command, arguments, status);
  add_down(command, arguments, status);
  add_fabric_set(command, arguments, status);
  add_status(command, arguments, status);
  add_exec(command, arguments, status);
  add_fabric_selftest(command, status);
  command.footer(
      "Exit status: 0 done, 1 failed (no root, a kernel module is missing), 2 wrong usage.\n"
      "Example: clustar fabric up --hosts 2 --rate 200M; clustar fabric exec 0 -- ip addr; clustar fabric down");
}

}  // namespace clustar::bench::cli
