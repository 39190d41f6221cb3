// `clustar doctor dpdk`: can packets go over DPDK in this environment?
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/doctor_command.h"
#include "bench/cli/options.h"
#include "bench/doctor/dpdk_checks.h"
#include "bench/doctor/dpdk_facts.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

int complain(int status, const std::string& message) {
  std::cerr << "clustar doctor dpdk: " << message << "\n";
  return status;
}

int run(const std::string& json) {
  if (const auto writable = report::check_writable(json); !writable) {
    return complain(kUsage, "--json: " + writable.error().message);
  }
  const auto checks = doctor::dpdk_checks(doctor::dpdk_facts_here());
  // JSON on standard output stays parseable: people's lines go to standard error then.
  (json == "-" ? std::cerr : std::cout) << doctor::dpdk_text(checks) << std::flush;
  if (!json.empty()) {
    const auto written = report::write_json(report::envelope("doctor dpdk", doctor::to_json(checks)), json);
    if (!written) return complain(kFailed, written.error().message);
  }
  return doctor::any_failed(checks) ? kFailed : kOk;
}

}  // namespace

void add_doctor_dpdk(CLI::App& doctor, int& status) {
  auto* command = doctor.add_subcommand("dpdk", "Can CLUSTAR_IO=dpdk be used here, and if not, why not");
  auto json = std::make_shared<std::string>();
  command->add_option("--json", *json, "Write the results to this file; - is standard output")->type_name("FILE");
  command->footer(
      "Run it where the training runs: same host, container, user and environment. DPDK itself is not started, and no\n"
      "device is touched. Exit status: 0 no check failed; 1 one did; 2 wrong usage.\n"
      "Example: CLUSTAR_DPDK_DEVICES=0000:65:00.0@10.0.0.1/24 clustar doctor dpdk");
  command->callback([json, &status] { status = run(*json); });
}

}  // namespace clustar::bench::cli
