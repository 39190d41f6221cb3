// Worker processes on this machine: this executable again, with its control connection as descriptor kControlFd.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "bench/perf/wire.h"
#include "bench/proxy/socket_io.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

// Ends with its owner: the destructor kills what still runs and waits for it, and the kernel kills it when this
// thread's process is gone.
class Process {
 public:
  Process() = default;
  explicit Process(pid_t pid) : pid_(pid) {}
  ~Process() { end(); }
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  pid_t pid() const { return pid_; }
  bool running();
  // Waits up to `limit` for it to end by itself. How it ended, or "" while it runs.
  std::string ended(std::chrono::milliseconds limit);
  void end();

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// `control` becomes the worker's; `plugin` empty for an end of a limit. Its environment is this process's, with the
// plugin's on top.
Result<Process> spawn_worker(const std::string& executable, FileDescriptor control,
                             const std::optional<PluginSpec>& plugin);

}  // namespace clustar::bench::perf
