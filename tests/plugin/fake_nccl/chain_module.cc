// A profiler that stands for NVIDIA's Inspector: it counts what reaches it and leaves its figures in a file when the
// last context ends. Which versions it exports is decided by the build (CLUSTAR_CHAIN_VERSION).
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "nccl_plugin/abi/profiler.h"

namespace {

using namespace clustar::nccl_abi;

struct State {
  std::mutex mutex;
  std::map<unsigned long long, unsigned long long> started;  // by type
  std::set<void*> open;
  unsigned long long orphans = 0;  // whose parent is no event of ours that is or was
  unsigned long long stopped = 0;
  unsigned long long unknown_stops = 0;
  unsigned long long records = 0;
  unsigned long long next = 1;
  int contexts = 0;
  std::set<void*> ever;
};
State& state() {
  static State all;
  return all;
}

void write_figures(const State& all) {
  const char* const path = std::getenv("CLUSTAR_TEST_CHAIN_FILE");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  for (const auto& [type, many] : all.started) std::fprintf(file, "type %llu %llu\n", type, many);
  std::fprintf(file, "stopped %llu\norphans %llu\nunknown_stops %llu\nrecords %llu\nopen %zu\n", all.stopped,
               all.orphans, all.unknown_stops, all.records, all.open.size());
  std::fclose(file);
}

int begin(void** context, int* mask) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.contexts;
  *context = &all;
  *mask = kEventGroup | kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventNetPlugin;
  return 0;
}
#if CLUSTAR_CHAIN_VERSION == 4
int init_v4(void** context, int* mask, const char*, std::uint64_t, int, int, int, DebugLogger) {
  return begin(context, mask);
}
#else
int init_v5(void** context, std::uint64_t, int* mask, const char*, int, int, int, DebugLogger) {
  return begin(context, mask);
}
#endif

template <class Descriptor>
int start(void*, void** handle, Descriptor* event) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.started[event->type];
  if (event->parent != nullptr && !all.ever.contains(event->parent)) ++all.orphans;
  *handle = reinterpret_cast<void*>(all.next++ << 4);
  all.open.insert(*handle);
  all.ever.insert(*handle);
  return 0;
}
int stop(void* handle) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.stopped;
  if (all.open.erase(handle) == 0) ++all.unknown_stops;
  return 0;
}
int record(void*, int, EventStateArgs*) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.records;
  return 0;
}
int finalize(void*) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (--all.contexts == 0) write_figures(all);
  return 0;
}

}  // namespace

#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

#if CLUSTAR_CHAIN_VERSION == 4
CLUSTAR_EXPORT const ProfilerV4 ncclProfiler_v4;
const ProfilerV4 ncclProfiler_v4 = {"chain-v4", init_v4, start<EventV4>, stop, record, finalize};
#elif CLUSTAR_CHAIN_VERSION == 5
CLUSTAR_EXPORT const ProfilerV5 ncclProfiler_v5;
const ProfilerV5 ncclProfiler_v5 = {"chain-v5", init_v5, start<EventV5>, stop, record, finalize};
#else
CLUSTAR_EXPORT const ProfilerV6 ncclProfiler_v6;
const ProfilerV6 ncclProfiler_v6 = {"chain-v6", init_v5, start<EventV6>, stop, record, finalize};
#endif
