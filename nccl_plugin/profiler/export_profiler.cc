// The exported tables ncclProfiler_v4 .. v6: each version only adapts types; profiler.h does the work. Nothing here is
// ever an error to NCCL but a wrong configuration at init: events that cannot be kept leave messages reliable.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/c_boundary.h"
#include "nccl_plugin/process.h"
#include "nccl_plugin/profiler/profiler.h"
#include "nccl_plugin/profiler/profiler_source.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

constexpr const char* kName = "clustar";

struct InitArguments {
  const char* comm_name;
  std::uint64_t comm_id;
  int nodes;
  int ranks;
  int rank;
};

int init(int version, void** context, int* mask, const InitArguments& arguments, DebugLogger logger) {
  if (context == nullptr || mask == nullptr) return kInvalidArgument;
  *context = nullptr;
  return guarded([&]() -> int {
    auto source = profiler_source(logger);
    if (!source) {
      if (logger != nullptr) {
        logger(kLogWarn, kLogInit, "clustar", 0, "PROFILER/clustar: %s", source.error().message.c_str());
      }
      return to_nccl(source.error().code);
    }
    Profiler::Opening opening;
    opening.comm.comm_id = arguments.comm_id;
    opening.comm.name = arguments.comm_name == nullptr ? "" : arguments.comm_name;
    opening.comm.ranks = arguments.ranks < 0 ? 0 : static_cast<std::uint32_t>(arguments.ranks);
    opening.comm.nodes = arguments.nodes < 0 ? 0 : static_cast<std::uint32_t>(arguments.nodes);
    opening.comm.rank = arguments.rank;
    opening.policy = std::shared_ptr<const LossPolicy>(*source, &(*source)->policy);
    opening.chain = (*source)->chain;
    opening.version = version;
    opening.logger = logger;
    opening.log = (*source)->log;
    const auto opened = process_profiler().open(opening, mask);
    if (!opened) {
      // No error: NCCL 2.27 would take the profiler from all communicators.
      opening.log.warn(opened.error().message);
      return kSuccess;
    }
    *context = *opened;
    return kSuccess;
  });
}

int init_v4(void** context, int* mask, const char* comm_name, std::uint64_t comm_id, int nodes, int ranks, int rank,
            DebugLogger logger) {
  return init(4, context, mask, {comm_name, comm_id, nodes, ranks, rank}, logger);
}
template <int kVersion>
int init_v5(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
            DebugLogger logger) {
  return init(kVersion, context, mask, {comm_name, comm_id, nodes, ranks, rank}, logger);
}

template <class Event>
int start_event(void* context, void** handle, Event* event) {
  if (handle == nullptr || event == nullptr) return kSuccess;
  return guarded([&]() -> int {
    process_profiler().start(context, handle, read_event(*event));
    return kSuccess;
  });
}

int stop_event(void* handle) {
  return guarded([&]() -> int {
    process_profiler().stop(handle);
    return kSuccess;
  });
}

int record_event_state(void* handle, int state, EventStateArgs* args) {
  return guarded([&]() -> int {
    process_profiler().record(handle, state, args);
    return kSuccess;
  });
}

int finalize(void* context) {
  return guarded([&]() -> int {
    if (context != nullptr) process_profiler().close(context);
    return kSuccess;
  });
}

}  // namespace
}  // namespace clustar::nccl_plugin

#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

CLUSTAR_EXPORT const clustar::nccl_abi::ProfilerV4 ncclProfiler_v4;
CLUSTAR_EXPORT const clustar::nccl_abi::ProfilerV5 ncclProfiler_v5;
CLUSTAR_EXPORT const clustar::nccl_abi::ProfilerV6 ncclProfiler_v6;

using namespace clustar::nccl_plugin;

const clustar::nccl_abi::ProfilerV4 ncclProfiler_v4 = {
    .name = kName,
    .init = init_v4,
    .startEvent = start_event<EventV4>,
    .stopEvent = stop_event,
    .recordEventState = record_event_state,
    .finalize = finalize,
};

const clustar::nccl_abi::ProfilerV5 ncclProfiler_v5 = {
    .name = kName,
    .init = init_v5<5>,
    .startEvent = start_event<EventV5>,
    .stopEvent = stop_event,
    .recordEventState = record_event_state,
    .finalize = finalize,
};

const clustar::nccl_abi::ProfilerV6 ncclProfiler_v6 = {
    .name = kName,
    .init = init_v5<6>,
    .startEvent = start_event<EventV6>,
    .stopEvent = stop_event,
    .recordEventState = record_event_state,
    .finalize = finalize,
};
