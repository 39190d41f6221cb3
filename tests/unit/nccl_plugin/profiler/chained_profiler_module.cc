// A profiler plugin that writes down its calls. Built with the tables of CHAINED_V4, CHAINED_V5 and CHAINED_V6, under
// the name CHAINED_NAME.
#include <mutex>
#include <utility>

#include "nccl_plugin/abi/profiler.h"
#include "tests/unit/nccl_plugin/profiler/chained_profiler.h"

#ifndef CHAINED_NAME
#define CHAINED_NAME "chained"
#endif
#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace clustar::nccl_abi;
using clustar::tests::ChainedCall;

std::mutex mutex;
std::vector<ChainedCall> calls;  // guarded by mutex
std::uintptr_t handles = 0;      // guarded by mutex
int asked = 0;

void* write_down(ChainedCall call) {
  const std::lock_guard lock(mutex);
  if (call.handle == nullptr) call.handle = reinterpret_cast<void*>(++handles);
  calls.push_back(std::move(call));
  return calls.back().handle;
}

[[maybe_unused]] int init(void** context, std::uint64_t comm_id, int* mask, const char* name) {
  *context = write_down({.call = "init", .number = comm_id, .func = name == nullptr ? "" : name});
  *mask = asked;
  return kSuccess;
}

template <class Event>
int start(void* context, void** handle, Event* event) {
  ChainedCall call{.call = "start", .context = context, .type = event->type, .parent = event->parent};
  if (event->type == kEventColl) {
    call.number = event->coll.seq_number;
    call.func = event->coll.func;
    if constexpr (requires { event->coll.parent_group; }) call.group = event->coll.parent_group;
  }
  if (event->type == kEventP2p) call.func = event->p2p.func;
  if (event->type == kEventProxyOp) call.number = event->proxy_op.channel;
  if (event->type == kEventProxyStep) call.number = static_cast<std::uint64_t>(event->proxy_step.step);
  if (event->type == kEventNetPlugin) call.number = static_cast<std::uint64_t>(event->net_plugin.id);
  *handle = write_down(std::move(call));
  return kSuccess;
}

[[maybe_unused]] int stop(void* handle) {
  write_down({.call = "stop", .handle = handle});
  return kSuccess;
}
[[maybe_unused]] int record(void* handle, int state, EventStateArgs*) {
  write_down({.call = "record", .handle = handle, .number = static_cast<std::uint64_t>(state)});
  return kSuccess;
}
[[maybe_unused]] int finalize(void* context) {
  write_down({.call = "finalize", .context = context, .handle = context});
  return kSuccess;
}
[[maybe_unused]] int init_v5(void** context, std::uint64_t comm_id, int* mask, const char* name, int, int, int,
                             DebugLogger) {
  return init(context, comm_id, mask, name);
}

}  // namespace

CLUSTAR_EXPORT int* const chained_profiler_mask;
int* const chained_profiler_mask = &asked;

// C++ types through a C name: both sides are built together.
__attribute__((visibility("default"))) std::vector<ChainedCall> take() {
  const std::lock_guard lock(mutex);
  return std::exchange(calls, {});
}
CLUSTAR_EXPORT clustar::tests::ChainedTake const chained_profiler_take;
clustar::tests::ChainedTake const chained_profiler_take = take;

#if CHAINED_V4
static int init_v4(void** context, int* mask, const char* name, std::uint64_t comm_id, int, int, int, DebugLogger) {
  return init(context, comm_id, mask, name);
}
CLUSTAR_EXPORT const ProfilerV4 ncclProfiler_v4;
const ProfilerV4 ncclProfiler_v4 = {CHAINED_NAME, init_v4, start<EventV4>, stop, record, finalize};
#endif
#if CHAINED_V5
CLUSTAR_EXPORT const ProfilerV5 ncclProfiler_v5;
const ProfilerV5 ncclProfiler_v5 = {CHAINED_NAME, init_v5, start<EventV5>, stop, record, finalize};
#endif
#if CHAINED_V6
CLUSTAR_EXPORT const ProfilerV6 ncclProfiler_v6;
const ProfilerV6 ncclProfiler_v6 = {CHAINED_NAME, init_v5, start<EventV6>, stop, record, finalize};
#endif
