// A program of somebody else's, run to its end: what it says is read, how long it may take is bounded, and it ends when
// this process is interrupted or ends.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::ab::cluster {

struct ProgramOptions {
  std::vector<std::string> words;                  // the first is looked up on PATH
  std::map<std::string, std::string> environment;  // on top of this process's
  // Each line of standard output, on the calling thread. False: it is kept among the last words.
  std::function<bool(const std::string& line)> on_line;
  std::chrono::seconds limit{0};  // 0: as long as it takes
  // After SIGTERM, before SIGKILL: it has to end what it started elsewhere.
  std::chrono::milliseconds patience{10000};
  std::function<int()> interrupted = {};  // asked every 50 ms: a signal's number, or 0
};

struct ProgramEnd {
  int status = 0;          // of its exit
  int signal = 0;          // that ended it, or 0
  bool over_time = false;  // it was ended for the limit
  int interrupted = 0;     // or for this signal
  std::string last_words;  // the end of what it wrote to standard error, and of other lines
};

bool on_path(const std::string& program);

// Blocks until it has ended. In a process group of its own, so that a terminal's Ctrl-C reaches it once, from here:
// mpirun takes two within 5 s for a reason to leave its ranks behind. The kernel sends it SIGTERM where this process
// dies. Call it while the process has one thread. kSystem: it cannot be started.
Result<ProgramEnd> run_program(const ProgramOptions& options);

}  // namespace clustar::bench::ab::cluster
