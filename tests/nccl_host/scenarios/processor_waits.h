#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

namespace nccl_host {

// How long threads of this process were ready to run while others had the processors. On an idle machine whatever it
// did would have been done sooner by that at the most, so what is late without that time is late by itself.
class ProcessorWaits {
 public:
  ProcessorWaits();

  // Nanoseconds of all threads together, of those that ended, too; 0 where Linux does not count it.
  int64_t Total();

 private:
  void Look();

  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::map<pid_t, int64_t> seen_;
  int64_t total_ = 0;
  std::jthread looker_;  // ends before the rest goes
};

}  // namespace nccl_host
