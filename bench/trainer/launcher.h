// Starts the rank processes of a run on this machine and looks after them: no rank outlives a failure of another, an
// interrupt or the launcher itself, and none stays behind as a zombie.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct LaunchOptions {
  int ranks = 1;
  int helpers = 0;  // processes behind the ranks, by their numbers: one that fails ends nothing
  std::string executable = "/proc/self/exe";
  std::function<std::vector<std::string>(int rank)> arguments;  // argv, with argv[0]
  // Set on top of the launcher's environment, which else reaches the ranks unchanged.
  std::map<std::string, std::string> environment;
  // Every line that a rank writes to kReportFd, on the calling thread. Lines that are no JSON object are left out.
  std::function<void(int rank, const nlohmann::json& record)> on_record;
  // After the first failure the others may report theirs for this long: the first to notice is not always the cause.
  std::chrono::milliseconds settle{500};
  // Then SIGTERM, and after this SIGKILL.
  std::chrono::milliseconds terminate{2000};
  // After the first rank ended well, how long the others may take.
  std::chrono::milliseconds finish{60000};
  // How long all of it may take; 0: as long as it does.
  std::chrono::milliseconds limit{0};
  // Asked every 50 ms or sooner, on the calling thread; true ends all ranks, which is an error. Where it is given,
  // signals are the caller's: several threads may each be in a launch(), and a signal would end only the ranks of one.
  std::function<bool()> stop;
};

// Blocks until all ranks ended, with SIGINT, SIGTERM and SIGHUP taken over meanwhile unless there is `stop` (call it
// from a process without other threads that expect them). Error: what ended the run, named by rank with its own error,
// exit status or signal; by then all ranks are gone.
Result<void> launch(const LaunchOptions& options);

// Call first in a launched rank: the kernel then ends it with its launcher, however that ends.
void end_with_launcher();

}  // namespace clustar::bench::trainer
