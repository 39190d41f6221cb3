// `clustar settings`: what the plugin would take from this environment, and what each setting means.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/report/report.h"
#include "bench/settings/settings_report.h"
#include "nccl_plugin/settings/all_settings.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  std::string prefix;
  std::string json;
  bool explain = false;
  bool markdown = false;
};

int complain(int status, const std::string& message) {
  std::cerr << "clustar settings: " << message << "\n";
  return status;
}

int run(const Arguments& arguments) {
  if (const auto writable = report::check_writable(arguments.json); !writable) {
    return complain(kUsage, "--json: " + writable.error().message);
  }
  // The reference does not depend on what is set here.
  const auto config = arguments.markdown ? load_settings({}) : load_settings();
  if (!config) return complain(kFailed, config.error().message);
  const auto rows = settings::rows(*config, arguments.prefix);
  if (rows.empty()) {
    return complain(kUsage, "no setting begins with '" + arguments.prefix + "'; clustar settings lists all");
  }
  std::ostream& people = arguments.json == "-" ? std::cerr : std::cout;
  people << (arguments.markdown ? settings::to_markdown(rows)
                                : settings::to_text(rows, arguments.explain || !arguments.prefix.empty()));
  for (const std::string& line : config->not_taken()) std::cerr << "clustar settings: " << line << "\n";
  if (arguments.json.empty()) return kOk;
  const auto written =
      report::write_json(report::envelope("settings", {{"settings", settings::to_json(rows)}}), arguments.json);
  return written ? kOk : complain(kFailed, written.error().message);
}

}  // namespace

void add_settings(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "settings", "Show the settings that the plugin takes from this environment, and all that exist");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("prefix", arguments->prefix,
                      "Explain only the settings that begin like this: tcp_, CLUSTAR_LOSS");
  command->add_flag("--explain", arguments->explain, "Explain each setting and what is allowed");
  command->add_flag("--markdown", arguments->markdown, "The reference, as docs/settings.md has it: no values");
  command->add_option("--json", arguments->json, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command->footer(
      "Default < the TOML file that CLUSTAR_CONFIG names < environment, as in the plugin. Exit status: 0 the plugin\n"
      "would take it, 1 it would refuse it, 2 wrong usage.\n"
      "Example: CLUSTAR_TCP_SOCKETS=4 clustar settings tcp_");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace clustar::bench::cli
