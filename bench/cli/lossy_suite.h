// `clustar perf --suite lossy`: its options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace clustar::bench::cli {

struct SuiteArguments {
  std::string name;  // "": no suite
  std::vector<std::string> scenarios;
  std::vector<std::string> arms;
  int rounds = 0;
  bool quick = false;
  bool full = false;
  std::uint64_t seed = 1;
  std::string report;  // "": no page
  std::string worker;  // the namespace of a worker of the suite's own
};

// `arguments` outlives `command`.
void add_suite_options(CLI::App& command, SuiteArguments& arguments);
// Returns the exit status.
int run_suite(const SuiteArguments& arguments, const std::string& json, const std::string& command_line);

}  // namespace clustar::bench::cli
