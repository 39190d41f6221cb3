#include <dirent.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "tests/nccl_host/scenarios/orderly.h"
#include "tests/nccl_host/scenarios/traffic.h"

namespace nccl_host {
namespace {

// Of the process that calls.
struct Usage {
  long resident_kib = 0;
  int descriptors = 0;
  int threads = 0;
};

int Entries(const char* folder) {
  DIR* const open = opendir(folder);
  RequireThat(open != nullptr, std::string("cannot read ") + folder);
  int result = 0;
  while (const dirent* entry = readdir(open)) result += entry->d_name[0] != '.';
  closedir(open);
  return result;
}

Usage Measure() {
  // What is free but kept depends on what the allocator has seen, not on what is held.
  malloc_trim(0);
  Usage usage;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) usage.resident_kib = std::stol(line.substr(8));
  }
  usage.descriptors = Entries("/proc/self/fd");
  usage.threads = Entries("/proc/self/task");
  return usage;
}

// Threads of streams end a moment after the communicator's destruction returns.
Usage MeasureSettled(const Usage& at_most) {
  Usage usage = Measure();
  for (int i = 0; i < 200 && (usage.threads > at_most.threads || usage.descriptors > at_most.descriptors); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    usage = Measure();
  }
  return usage;
}

}  // namespace

void Many(Context& context) {
  // Threads take arenas in turns, up to eight per core, so memory would grow until each arena has seen everything.
  mallopt(M_ARENA_MAX, 1);
  // After the warm-up: 256 KiB and 1 KiB a communicator are pages of the heap that are in use in part.
  const int times = context.options.times;
  const int warm_up = std::max(times / 10, std::min(times / 2, 10));
  const long allowed_kib = 256 + 1L * times;
  Usage first;
  for (int i = 0; i < times; ++i) {
    const ncclComm_t communicator = context.NewCommunicator();
    {
      Traffic traffic(context, communicator, context.count());
      for (int round = 0; round < 2; ++round) {
        Require(traffic.AllReduce(round), "ncclAllReduce");
        traffic.Finish();
      }
    }
    Require(ncclCommDestroy(communicator), "ncclCommDestroy");
    if (i + 1 == warm_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      first = Measure();
    }
  }
  RequireThat(times > 1, "many needs --times of at least 2");
  const Usage last = MeasureSettled(first);
  const bool flat = last.resident_kib <= first.resident_kib + allowed_kib && last.descriptors <= first.descriptors &&
                    last.threads <= first.threads;
  if (context.rank == 0 || !flat)
    std::printf(
        "many: rank %d, after %d and after %d communicators: resident %ld and %ld KiB (%ld more allowed), "
        "descriptors %d and %d, threads %d and %d\n",
        context.rank, warm_up, times, first.resident_kib, last.resident_kib, allowed_kib, first.descriptors,
        last.descriptors, first.threads, last.threads);
  std::fflush(stdout);
  RequireThat(flat, "many: more memory, descriptors or threads than after the warm-up");
}

}  // namespace nccl_host
