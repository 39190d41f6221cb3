// `clustar doctor torch`: can torch.distributed use the backend clustar in this environment?
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/doctor_command.h"
#include "bench/cli/options.h"
#include "bench/doctor/torch_checks.h"
#include "bench/doctor/torch_probe.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  std::string python = "python3";
  std::string json;
};

int complain(int status, const std::string& message) {
  std::cerr << "clustar doctor torch: " << message << "\n";
  return status;
}

int run(const Arguments& arguments) {
  if (const auto writable = report::check_writable(arguments.json); !writable) {
    return complain(kUsage, "--json: " + writable.error().message);
  }
  const doctor::TorchFacts facts = doctor::torch_facts_of(arguments.python);
  const auto checks = doctor::torch_checks(facts);
  // JSON on standard output stays parseable: people's lines go to standard error then.
  (arguments.json == "-" ? std::cerr : std::cout) << doctor::to_text(facts, checks) << std::flush;
  if (!arguments.json.empty()) {
    const auto written =
        report::write_json(report::envelope("doctor torch", doctor::to_json(facts, checks)), arguments.json);
    if (!written) return complain(kFailed, written.error().message);
  }
  return doctor::any_failed(checks) ? kFailed : kOk;
}

}  // namespace

void add_doctor_torch(CLI::App& doctor, int& status) {
  auto* command =
      doctor.add_subcommand("torch", "Can torch.distributed use the backend clustar here, and if not, why not");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--python", arguments->python, "The Python that trains, on PATH or by its path")
      ->type_name("PYTHON")
      ->capture_default_str();
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->footer(
      "Run it where the training runs: same host, container, user and environment. Exit status: 0 no check failed;\n"
      "1 one did; 2 wrong usage.\n"
      "Example: clustar doctor torch --python /usr/bin/python3");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace clustar::bench::cli
