// Runs one body in a forked process under a watchdog, so that a crash or a hang of the plugin is a finding.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "bench/conform/verdict.h"

namespace clustar::bench::conform {

struct Finding {
  Outcome outcome = Outcome::kFail;
  std::string reason;
  double seconds = 0;
};

// Call from a process without threads that has not loaded the plugin. The body runs in a process group of its own,
// with its output caught (its last line is quoted when it crashes); the group is killed on the way out.
// A body that is not through after `limit` fails with "no answer in N s" and what it was at.
Finding run_in_child(const std::function<std::string()>& body, std::chrono::milliseconds limit);

// "SIGSEGV" for 11, and so on.
std::string signal_name(int signal);

}  // namespace clustar::bench::conform
