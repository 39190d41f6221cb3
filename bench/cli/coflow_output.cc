#include "bench/cli/coflow_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/cli/options.h"
#include "bench/coflow/page.h"
#include "bench/report/report.h"
#include "coflow/registry.h"

namespace clustar::bench::cli {

void add_json_options(CLI::App& command, CoflowOutput& output) {
  command.add_option("--json", output.json_path, "Write the results to this file; - is standard output")
      ->type_name("FILE");
  command.add_flag("--no-progress", output.quiet, "Nothing on standard error while it runs");
}

void add_output_options(CLI::App& command, CoflowOutput& output) {
  add_json_options(command, output);
  command.add_option("--report", output.report_path, "The results as a page with plots; - is standard output")
      ->type_name("FILE.html");
}

void add_refill_option(CLI::App& command, std::optional<Duration>& refill) {
  command
      .add_option_function<double>(
          "--refill-ms", [&refill](const double& ms) { refill = Duration(static_cast<Duration::rep>(ms * 1e6)); },
          "Policies that share ports take ended flows into account so often at most; 0: at once, slow "
          "[100 at 1 Gbit/s, less at more]")
      ->check(number_between(0, 1e6))
      ->type_name("FLOAT");
}

Result<void> check(const CoflowOutput& output) {
  if (!output.json_path.empty() && output.json_path == output.report_path) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--json and --report both name '{}'; allowed: a file each", output.json_path));
  }
  for (const std::string& path : {output.json_path, output.report_path}) {
    if (const auto ok = report::check_writable(path); !ok) return ok;
  }
  return {};
}

coflow::Say progress(const CoflowOutput& output) {
  if (output.quiet) return [](const std::string&, bool) {};
  if (isatty(STDERR_FILENO) == 1) {
    return
        [](const std::string& line, bool done) { std::cerr << "\r\33[K" << line << (done ? "\n" : "") << std::flush; };
  }
  return [](const std::string& line, bool done) {
    if (done) std::cerr << line << "\n";
  };
}

Result<void> write(const CoflowOutput& output, const std::string& text, nlohmann::json document) {
  document["command_line"] = report::command_line();
  if (output.json_path != "-" && output.report_path != "-") {
    if (const auto ok = report::write_text(text, "-"); !ok) return ok;
  }
  if (!output.json_path.empty()) {
    if (const auto ok = report::write_json(document, output.json_path); !ok) return ok;
  }
  if (output.report_path.empty()) return {};
  const auto page = coflow::page(document);
  if (!page) return tl::unexpected(page.error());
  return report::write_text(*page, output.report_path);
}

std::string policy_help() {
  std::string help = "Policies, with their keys (policy:key=value,...):\n";
  for (const auto& one : clustar::coflow::policies()) {
    help += fmt::format("  {:<8}{}{}{}\n", one.name, one.what, one.keys.empty() ? "" : "; ", one.keys);
  }
  return help;
}

}  // namespace clustar::bench::cli
