// `clustar report`: draws the page of a saved JSON file.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/cli/commands.h"
#include "bench/cli/options.h"
#include "bench/coflow/page.h"
#include "bench/lossy/report/page.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {
namespace {

struct Arguments {
  std::string input;
  std::string output;
};

int complain(int status, const std::string& message) {
  std::cerr << "clustar report: " << message << "\n";
  return status;
}

int draw_coflows(const Arguments& arguments, const nlohmann::json& document) {
  const auto page = coflow::page(document);
  if (!page) return complain(kUsage, "'" + arguments.input + "': " + page.error().message);
  if (const auto ok = report::check_writable(arguments.output); !ok) return complain(kUsage, ok.error().message);
  if (const auto ok = report::write_text(*page, arguments.output); !ok) return complain(kFailed, ok.error().message);
  if (arguments.output != "-") std::cout << "Report: " << arguments.output << "\n";
  return kOk;
}

int run_report(const Arguments& arguments) {
  std::ifstream in(arguments.input);
  if (!in) return complain(kUsage, "cannot read '" + arguments.input + "': " + strerror(errno));
  const auto document = nlohmann::json::parse(in, nullptr, false);
  if (document.is_discarded()) return complain(kUsage, "'" + arguments.input + "' is no JSON");
  if (coflow::can_draw(document)) return draw_coflows(arguments, document);
  if (!lossy_report::can_draw(document)) {
    return complain(kUsage, "'" + arguments.input +
                                "' has no results.scenarios; what can be drawn is the JSON of clustar perf --suite "
                                "lossy --json FILE, clustar coflow replay and clustar coflow sweep");
  }
  if (const auto ok = report::check_writable(arguments.output); !ok) return complain(kUsage, ok.error().message);
  const auto page = lossy_report::make_page(document);
  for (const std::string& problem : page.problems) complain(kOk, "warning: plots are missing: " + problem);
  if (const auto ok = report::write_text(page.html, arguments.output); !ok) {
    return complain(kFailed, ok.error().message);
  }
  if (arguments.output != "-") std::cout << "Report with " << page.plots << " plots: " << arguments.output << "\n";
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
  auto* command =
      app.add_subcommand("report", "Draw the HTML report of a saved JSON file (perf --suite lossy, coflow)");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("json", arguments->input,
                   "JSON that clustar perf --suite lossy, clustar coflow replay or clustar coflow sweep wrote")
      ->type_name("FILE.json")
      ->required();
  command->add_option("-o,--output", arguments->output, "The page: one file, nothing outside it; - is standard output")
      ->type_name("FILE.html")
      ->required();
  command->footer(
      "Plots of the lossy suite are drawn by gnuplot (package gnuplot-nox); without it its page has tables only, and "
      "says "
      "so.\n"
      "Exit status: 0 ok (with or without plots), 1 the page could not be written, 2 wrong usage or another file.\n"
      "Example: clustar report lossy.json -o lossy.html");
  command->callback([arguments, &status] { status = run_report(*arguments); });
}

}  // namespace clustar::bench::cli
