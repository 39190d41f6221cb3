// `clustar fabric up`: which fabric is asked for.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/cli/fabric_command.h"
#include "bench/cli/options.h"
#include "bench/fabric/fabric.h"
#include "bench/fabric/places.h"
#include "bench/fabric/render.h"
#include "bench/fabric/topology_file.h"

namespace clustar::bench::cli {
namespace {

// Reads an option's text into `value`, when it was given; the error names the option.
template <class Parse, class Value>
Result<void> read_option(const char* option, const std::string& text, const Parse& parse, Value& value) {
  if (text.empty()) return {};
  const auto parsed = parse(text);
  if (!parsed) return fail(parsed.error().code, fmt::format("{}: {}", option, parsed.error().message));
  value = *parsed;
  return {};
}

Result<std::uint64_t> parse_buffer(const std::string& text) {
  const auto bytes = fabric::parse_size(text);
  if (!bytes || *bytes != 0) return bytes;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}': a port without a queue passes nothing; leave it out for the default", text));
}

Result<std::uint64_t> parse_uplink_rate(const std::string& text) {
  const auto rate = fabric::parse_rate(text);
  if (!rate || *rate != 0) return rate;
  return fail(ErrorCode::kInvalidArgument, "uplinks are unshaped when the ports are (--rate off); or use --topology");
}

Result<int> parse_spines(const std::string& text) {
  int spines = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), spines);
  if (error == std::errc() && rest == text.data() + text.size() && spines > 0) return spines;
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no number of spines; allowed: 1 to 64", text));
}

Result<fabric::FabricSpec> read_form(const FabricArguments& arguments) {
  if (!arguments.topology.empty()) return fabric::read_topology_file(arguments.topology, arguments.spec.name);
  fabric::FabricSpec spec = arguments.spec;
  if (!arguments.spines.empty()) spec.spines = fabric::kDefaultSpines;
  const std::string spines = arguments.spines.empty() ? "" : arguments.spines.front();
  const Result<void> read[] = {
      read_option("--rate", arguments.rate, fabric::parse_rate, spec.rate_bps),
      read_option("--buffer", arguments.buffer, parse_buffer, spec.buffer_bytes),
      read_option("--spine", spines, parse_spines, spec.spines),
      read_option("--uplink-rate", arguments.uplink_rate, parse_uplink_rate, spec.uplink_rate_bps),
      read_option("--uplink-buffer", arguments.uplink_buffer, parse_buffer, spec.uplink_buffer_bytes),
      read_option("--delay", arguments.delay, fabric::parse_delay, spec.delay_ns),
      read_option("--delay-by", arguments.delay_by, fabric::parse_delay_by, spec.delay_by),
  };
  for (const Result<void>& one : read) {
    if (!one) return tl::unexpected(one.error());
  }
  return fabric::checked(std::move(spec));
}

Result<fabric::FabricSpec> read_spec(const FabricArguments& arguments) {
  auto spec = read_form(arguments);
  if (!spec || !arguments.rules.any()) return spec;
  const auto done =
      fabric::edit_rules(*spec, "", [&](fabric::PortRules& rules) { return apply_options(arguments.rules, rules); });
  if (!done) return tl::unexpected(done.error());
  return fabric::checked(std::move(*spec));
}

int up(const FabricArguments& arguments) {
  const auto spec = read_spec(arguments);
  if (!spec) return fabric_error(spec.error());
  int status = kOk;
  if (cannot_write(arguments.json_path, status)) return status;
  fabric::UpReport report;
  const auto made = fabric::Fabric::up(*spec, &report, arguments.force ? fabric::Others::kTake : fabric::Others::kKeep);
  if (!made) return fabric_error(made.error());
  return show_fabric(arguments, fabric::up_text(*made, report), fabric::up_json(*made, report));
}

void add_lines(CLI::App& command, FabricArguments& arguments) {
  command
      .add_option("--rate", arguments.rate,
                  "Rate of each port and direction, in bit/s: 200M, 1G, 10gbit; off: no shaping")
      ->type_name("RATE")
      ->capture_default_str();
  command.add_option("--mtu", arguments.spec.mtu, "Bytes of an IP packet")
      ->check(CLI::Range(fabric::kMinMtu, fabric::kMaxMtu))
      ->capture_default_str();
  command
      .add_option("--buffer", arguments.buffer,
                  "Buffer of a switch port towards its host, in bytes: 100k, 64Ki [5 ms of the rate, at least 100k]")
      ->type_name("BYTES");
  command.add_option("--delay", arguments.delay, "Propagation delay of each link, one way: 800ns, 50us, 1.5ms [none]")
      ->type_name("TIME");
  command
      .add_option(
          "--delay-by", arguments.delay_by,
          "What makes the delay: the kernel's netem, a forwarder (a process), or auto: netem where there is one "
          "[auto]")
      ->type_name("netem|forwarder|auto");
}

void add_tiers(CLI::App& command, FabricArguments& arguments) {
  CLI::Option* spine =
      command
          .add_option("--spine", arguments.spines,
                      fmt::format("Two tiers with S spines [{}]: a path over each, chosen by the hash of addresses and "
                                  "ports",
                                  fabric::kDefaultSpines))
          ->type_name("S")
          ->expected(0, 1);
  command
      .add_option("--leaves", arguments.spec.leaves,
                  fmt::format("Leaves of the two tiers [{}]", fabric::kDefaultLeaves))
      ->check(CLI::Range(2, 64))
      ->needs(spine);
  command
      .add_option("--uplink-rate", arguments.uplink_rate,
                  "Rate of each link between leaf and spine [rate x hosts per leaf / S: not oversubscribed]")
      ->type_name("RATE")
      ->needs(spine);
  command
      .add_option("--uplink-buffer", arguments.uplink_buffer,
                  "Buffer at both ends of such a link [as --buffer of its rate]")
      ->type_name("BYTES")
      ->needs(spine);
}

}  // namespace

void add_fabric_up(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status) {
  CLI::App& command =
      add_fabric_command(app, "up", "Make the fabric; nothing happens when just this one is there", *arguments);
  command.add_option("--hosts", arguments->spec.hosts, "Hosts around the switch")
      ->check(CLI::Range(fabric::kMinHosts, fabric::kMaxHosts))
      ->capture_default_str();
  add_lines(command, *arguments);
  add_tiers(command, *arguments);
  CLI::Option* file = command
                          .add_option("--topology", arguments->topology,
                                      "Switches, hosts and links as this TOML file says (docs/fabric.md)")
                          ->type_name("FILE");
  for (const char* other : {"--hosts", "--rate", "--mtu", "--buffer", "--delay", "--delay-by", "--spine"}) {
    file->excludes(command.get_option(other));
  }
  add_rule_options(command, arguments->rules);
  add_fabric_force(command, *arguments);
  add_fabric_json(command, *arguments);
  command.footer(
      "A fabric of that name with other arguments is rebuilt, unless processes run in it or another user made it.\n"
      "Example: clustar fabric up --hosts 4 --rate 200M --mtu 1500 --buffer 100k --loss 1% --ecn 65k:65k:1\n"
      "         clustar fabric up --hosts 8 --spine 4 --leaves 2 --rate 200M");
  command.callback([arguments, &status] { status = up(*arguments); });
}

}  // namespace clustar::bench::cli
