#include "tests/nccl_host/scenarios/processor_waits.h"

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace nccl_host {
namespace {

// Linux forgets it with the thread.
constexpr std::chrono::milliseconds kLookEvery{20};

// The second number of a thread's schedstat; 0: it ended meanwhile, or nothing is counted.
int64_t WaitOf(const char* thread) {
  std::FILE* const file = std::fopen(("/proc/self/task/" + std::string(thread) + "/schedstat").c_str(), "re");
  if (!file) return 0;
  long long ran = 0;
  long long waited = 0;
  const int read = std::fscanf(file, "%lld %lld", &ran, &waited);
  std::fclose(file);
  return read == 2 ? waited : 0;
}

}  // namespace

ProcessorWaits::ProcessorWaits()
    : looker_([this](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (!stop.stop_requested()) {
          Look();
          stopped_.wait_for(lock, stop, kLookEvery, [] { return false; });
        }
      }) {}

int64_t ProcessorWaits::Total() {
  const std::lock_guard lock(mutex_);
  Look();
  return total_;
}

void ProcessorWaits::Look() {
  DIR* const folder = opendir("/proc/self/task");
  if (!folder) return;
  while (const dirent* const entry = readdir(folder)) {
    const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
    if (thread <= 0) continue;
    const int64_t now = WaitOf(entry->d_name);
    int64_t& before = seen_[thread];
    // A number that is lower is of another thread with that name.
    if (now > 0) total_ += now >= before ? now - before : now;
    if (now > 0) before = now;
  }
  closedir(folder);
}

}  // namespace nccl_host
