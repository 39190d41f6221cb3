// gnuplot as a bounded child process: found on PATH at run time, no shell, no files, nothing of the user's settings.
#pragma once

#include <chrono>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::lossy_report {

struct GnuplotOptions {
  std::string program = "gnuplot";              // a path, or a name to look for on PATH
  std::chrono::milliseconds limit{15'000};      // for one plot; then it is killed
  std::size_t max_output = 8U * 1024U * 1024U;  // bytes
};

// What it wrote to standard output for the script, which it gets on standard input. kUnavailable: there is none, with
// the package that has it. kSystem: it failed (with the start of what it said), took longer than the limit, or wrote
// more than it may.
Result<std::string> run_gnuplot(const std::string& script, const GnuplotOptions& options);

}  // namespace clustar::bench::lossy_report
