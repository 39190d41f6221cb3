// What the subcommands of `clustar coflow` share: options, what they write, and where.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/coflow/compare.h"

namespace CLI {
class App;
}

namespace clustar::bench::cli {

struct CoflowOutput {
  std::string json_path;
  std::string report_path;
  bool quiet = false;
};
void add_output_options(CLI::App& command, CoflowOutput& output);
void add_json_options(CLI::App& command, CoflowOutput& output);  // the same without a page
// --refill-ms, for CompareOptions::refill and SweepOptions::refill.
void add_refill_option(CLI::App& command, std::optional<Duration>& refill);
// Before long work. Errors: kInvalidArgument.
Result<void> check(const CoflowOutput& output);
// A line on a terminal, overwritten by the next; elsewhere those alone that end something.
coflow::Say progress(const CoflowOutput& output);
// The text on standard output, unless that is for one of the files. Adds the command line to the document. Errors name
// what cannot be written.
Result<void> write(const CoflowOutput& output, const std::string& text, nlohmann::json document);

// Of --policy, for a footer.
std::string policy_help();

void add_coflow_play(CLI::App& app, int& status);
void add_coflow_replay(CLI::App& app, int& status);
void add_coflow_sweep(CLI::App& app, int& status);

}  // namespace clustar::bench::cli
