// `clustar report`: draws the page of a saved JSON file.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/ab/jobs/results.h"
#include "bench/ab/reproduction/outcome.h"
#include "bench/ab/results.h"
#include "bench/ab/scaling/results.h"
#include "bench/ab/suite/page.h"
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

// Error: a document that is not as its command writes it.
using Draw = std::function<Result<std::string>(const nlohmann::json& document)>;

int draw(const Arguments& arguments, const nlohmann::json& document, const Draw& page_of) {
  const auto page = page_of(document);
  if (!page) return complain(kUsage, "'" + arguments.input + "': " + page.error().message);
  if (const auto ok = report::check_writable(arguments.output); !ok) return complain(kUsage, ok.error().message);
  if (const auto ok = report::write_text(*page, arguments.output); !ok) return complain(kFailed, ok.error().message);
  if (arguments.output != "-") std::cout << "Report: " << arguments.output << "\n";
  return kOk;
}

bool is_ab(const nlohmann::json& document) {
  return document.is_object() && document.value("command", nlohmann::json()) == "ab";
}

Result<std::string> ab_page(const nlohmann::json& document) {
  try {
    if (document.contains("jobs")) return ab::jobs::page(document);
    if (document.contains("scaling")) return ab::scaling::page(document);
    if (document.contains("table")) return ab::reproduction::page(document);
    return document.contains("training") ? ab::suite::page(document) : ab::html(document);
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, std::string("it is not as clustar ab --json writes it: ") + error.what());
  }
}

// "" when it can be read.
std::string unreadable(const std::string& path) {
  const std::ifstream in(path);
  return in ? "" : "cannot read '" + path + "': " + strerror(errno);
}

int run_report(const Arguments& arguments) {
  std::error_code error;
  if (std::filesystem::equivalent(arguments.input, arguments.output, error)) {
    return complain(kUsage,
                    "-o names the results themselves, '" + arguments.input + "'; give the page a name of its own");
  }
  const auto text = report::read_text(arguments.input);
  if (!text) return complain(kUsage, text.error().message);
  const auto document = nlohmann::json::parse(*text, nullptr, false);
  if (document.is_discarded()) return complain(kUsage, "'" + arguments.input + "' is no JSON");
  if (coflow::can_draw(document)) return draw(arguments, document, coflow::page);
  if (is_ab(document)) return draw(arguments, document, ab_page);
  if (!lossy_report::can_draw(document)) {
    return complain(kUsage,
                    "'" + arguments.input +
                        "' has no results that can be drawn; what can is the JSON of clustar ab, of clustar perf "
                        "--suite lossy, and of clustar coflow replay and sweep");
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
      app.add_subcommand("report", "Draw the HTML report of a saved JSON file (ab, perf --suite lossy, coflow)");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("json", arguments->input,
                   "What --json of clustar ab, perf --suite lossy, coflow replay or coflow sweep wrote")
      // Before CLI11 looks for what is required: who mistyped the file hears of that first.
      ->check(CLI::Validator(unreadable, ""))
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
