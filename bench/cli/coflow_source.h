// The workload that a subcommand of `clustar coflow` is given.
#pragma once

#include <string>
#include <vector>

#include "bench/coflow/source.h"

namespace CLI {
class App;
}

namespace clustar::bench::cli {

struct CoflowSource {  // one of the first three
  std::string trace;
  std::string generate;
  std::vector<std::string> jobs;
  std::string muri;
};
void add_source_options(CLI::App& command, CoflowSource& source);  // all but --muri
void add_muri_option(CLI::App& command, CoflowSource& source);
// Errors: kInvalidArgument.
Result<void> check(const CoflowSource& source);
Result<coflow::Source> read_source(const CoflowSource& source);

}  // namespace clustar::bench::cli
