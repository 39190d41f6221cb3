// `clustar fabric selftest`: does the switch do what was asked of it?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/cli/fabric_command.h"
#include "bench/cli/options.h"
#include "bench/fabric/selftest/render.h"
#include "bench/fabric/selftest/selftest.h"

namespace clustar::bench::cli {
namespace {

namespace selftest = fabric::selftest;

struct SelftestArguments {
  selftest::Options options;
  std::string rate = "200M";
  std::string buffer;
  std::string json_path;
};

Result<selftest::Options> read_options(const SelftestArguments& arguments) {
  selftest::Options options = arguments.options;
  const auto rate = fabric::parse_rate(arguments.rate);
  if (!rate) return fail(rate.error().code, "--rate: " + rate.error().message);
  options.rate_bps = *rate;
  if (!arguments.buffer.empty()) {
    const auto buffer = fabric::parse_size(arguments.buffer);
    if (!buffer) return fail(buffer.error().code, "--buffer: " + buffer.error().message);
    options.buffer_bytes = std::max<std::uint64_t>(*buffer, 1);  // 0 would be the default
  }
  return selftest::checked(std::move(options));
}

int run_selftest(const SelftestArguments& arguments) {
  const auto options = read_options(arguments);
  if (!options) return fabric_error(options.error());
  int status = kOk;
  if (cannot_write(arguments.json_path, status)) return status;
  const auto report = selftest::run(
      *options, [](const std::string& line) { std::cerr << "clustar fabric selftest: " << line << "\n"; });
  if (!report) return fabric_error(report.error());
  FabricArguments shown;
  shown.json_path = arguments.json_path;
  status = show_fabric(shown, selftest::text(*report), selftest::to_json(*report));
  return report->good() ? status : kFailed;
}

}  // namespace

void add_fabric_selftest(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SelftestArguments>();
  CLI::App& command = *app.add_subcommand(
      "selftest", "Measure, on fabrics of its own and by packets of its own, that switches do what is asked of them");
  command.add_option("--rate", arguments->rate, "Rate of the measured port, in bit/s: 200M, 1G")
      ->type_name("RATE")
      ->capture_default_str();
  command.add_option("--mtu", arguments->options.mtu, "Bytes of an IP packet")
      ->check(CLI::Range(fabric::kMinMtu, fabric::kMaxMtu))
      ->capture_default_str();
  command.add_option("--buffer", arguments->buffer, "Buffer of the measured port, in bytes: 100k [5 ms of the rate]")
      ->type_name("BYTES");
  command
      .add_option("--only", arguments->options.only,
                  fmt::format("Only these checks: {}", fmt::join(selftest::check_names(), ", ")))
      ->delimiter(',')
      ->type_name("CHECK[,CHECK]");
  command.add_flag("--quick", arguments->options.quick, "Fewer packets and wider intervals, less than 20 s");
  command.add_flag("--strict", arguments->options.strict,
                   "Count skipped checks as failed, also on a busy machine or without eBPF");
  command.add_option("--json", arguments->json_path, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command.footer(
      "Exit status: 0 nothing failed, 1 something failed (with --strict: or was skipped, or has no row), 2 wrong "
      "usage. What is\n"
      "skipped says why.\n"
      "Example: clustar fabric selftest --quick; clustar fabric selftest --rate 1G --only rate,drain");
  command.callback([arguments, &status] { status = run_selftest(*arguments); });
}

}  // namespace clustar::bench::cli
