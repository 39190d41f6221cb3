// `clustar doctor nccl`: would NCCL use clustar in this environment, and on all hosts alike?
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cli/doctor_command.h"
#include "bench/cli/options.h"
#include "bench/doctor/ask_hosts.h"
#include "bench/doctor/nccl_checks.h"
#include "bench/doctor/nccl_facts.h"
#include "bench/doctor/nccl_report.h"
#include "bench/report/report.h"
#include "nccl_plugin/settings/all_settings.h"

namespace clustar::bench::cli {
namespace {

constexpr std::chrono::seconds kAnswer{150};  // all hosts at once; a doctor there opens five plugins, 20 s each at most
constexpr const char* kSsh = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}";

struct Arguments {
  std::vector<std::string> hosts;
  std::vector<std::string> compare;
  std::string launch = kSsh;
  bool launch_given = false;
  std::string json;
  bool all = false;
};

int complain(int status, const std::string& message) {
  std::cerr << "clustar doctor nccl: " << message << "\n";
  return status;
}

std::string contradiction(const Arguments& arguments) {
  if (!arguments.hosts.empty() && !arguments.compare.empty()) {
    return "--hosts asks hosts, --compare reads their files; give one of the two";
  }
  if (arguments.launch_given && arguments.hosts.empty()) return "--launch needs --hosts: whom to start it on";
  if (arguments.launch.find("{host}") == std::string::npos) {
    return "--launch '" + arguments.launch + "' names no {host}, which each host's name takes the place of";
  }
  for (const std::string& file : arguments.compare) {
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error)) continue;
    return "--compare: there is no file '" + file + "'" + (error ? ": " + error.message() : "");
  }
  return {};
}

// JSON on standard output stays parseable: people's lines go to standard error then.
int tell(const Arguments& arguments, const std::string& text, nlohmann::json results,
         const std::vector<doctor::Check>& checks) {
  (arguments.json == "-" ? std::cerr : std::cout) << text << std::flush;
  if (!arguments.json.empty()) {
    const auto written = report::write_json(report::envelope("doctor nccl", std::move(results)), arguments.json);
    if (!written) return complain(kFailed, written.error().message);
  }
  return doctor::any_failed(checks) ? kFailed : kOk;
}

int run_here(const Arguments& arguments) {
  const doctor::NcclFacts facts = doctor::nccl_facts_here();
  const auto checks = doctor::nccl_checks(facts);
  return tell(arguments, doctor::to_text(facts, checks, arguments.all), doctor::to_json(facts, checks), checks);
}

// The report that cannot be compared even with itself.
std::size_t first_odd(const std::vector<doctor::HostReport>& reports) {
  for (std::size_t i = 0; i + 1 < reports.size(); ++i) {
    try {
      doctor::compare({reports[i]}, {});
    } catch (const nlohmann::json::exception&) {
      return i;
    }
  }
  return reports.size() - 1;
}

int run_compare(const Arguments& arguments) {
  std::vector<doctor::HostReport> reports;
  for (const std::string& file : arguments.compare) {
    const auto text = report::read_text(file);
    if (!text) return complain(kUsage, "--compare: " + text.error().message);
    reports.push_back(doctor::host_report(*text, file));
  }
  if (!arguments.hosts.empty()) {
    std::error_code error;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
    reports = doctor::ask_hosts(arguments.hosts, arguments.launch, {self, "doctor", "nccl", "--json", "-"}, kAnswer);
  }
  std::vector<doctor::Check> checks;
  try {
    checks = doctor::compare(reports, shared_names(all_settings()));
  } catch (const nlohmann::json::exception& error) {
    const auto& names = arguments.hosts.empty() ? arguments.compare : arguments.hosts;
    return complain(kUsage, "the report of '" + names[first_odd(reports)] +
                                "' has values that `clustar doctor nccl --json` does not write: " + error.what());
  }
  nlohmann::json results = doctor::to_json(checks);
  for (const doctor::HostReport& report : reports) results["hosts"].push_back(report.host);
  const std::string text =
      "Would ranks on these hosts fit each other?\n" + doctor::to_text(checks) + "\n" + doctor::counts(checks) + ".\n";
  return tell(arguments, text, std::move(results), checks);
}

int run(const Arguments& arguments) {
  if (const std::string wrong = contradiction(arguments); !wrong.empty()) return complain(kUsage, wrong);
  if (const auto writable = report::check_writable(arguments.json); !writable) {
    return complain(kUsage, "--json: " + writable.error().message);
  }
  return arguments.hosts.empty() && arguments.compare.empty() ? run_here(arguments) : run_compare(arguments);
}

}  // namespace

void add_doctor_nccl(CLI::App& doctor, int& status) {
  auto* command = doctor.add_subcommand("nccl", "Would NCCL use clustar in this environment, and if not, why not");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--hosts", arguments->hosts, "Ask these hosts, and compare what they say: a,b,c")
      ->delimiter(',')
      ->type_name("HOST,...");
  const auto* launch =
      command
          ->add_option("--launch", arguments->launch,
                       "With --hosts: the words that start a command on {host}. Its environment there is what counts")
          ->type_name("WORDS")
          ->capture_default_str();
  command->add_option("--compare", arguments->compare, "Compare these files, which this command wrote with --json")
      ->type_name("FILE...");
  command->add_flag("--all", arguments->all, "Settings at their default, too");
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->footer(
      "Run it where the training runs: same host, container, user and environment. Plugins are opened as NCCL opens\n"
      "them, and initialized, in separate processes; nothing is connected. Exit status: 0 no check failed; 1 one did;\n"
      "2 wrong usage.\n"
      "Example: NCCL_NET_PLUGIN=clustar clustar doctor nccl\n"
      "In a job: srun sh -c 'clustar doctor nccl --json $(hostname).json'; clustar doctor nccl --compare *.json\n"
      "By ssh, with the environment that a command gets there: clustar doctor nccl --hosts a,b");
  command->callback([arguments, launch, &status] {
    arguments->launch_given = launch->count() > 0;
    status = run(*arguments);
  });
}

}  // namespace clustar::bench::cli
