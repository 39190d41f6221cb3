// Streams and events of the fake driver. What is queued is done when somebody asks often enough, in order.
#include <sys/mman.h>

#include <cstring>

#include "tests/gdr/fake_libcuda/state.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace clustar::tests {
namespace {

// One element of each stream comes to its end every `latency` calls; events behind it are reached with it.
void pass_time(FakeState& state) {
  if (state.held || state.dead != CUDA_SUCCESS) return;
  for (CUstream stream : state.streams) {
    if (stream->queue.empty() || ++stream->polls < state.latency) continue;
    stream->polls = 0;
    while (!stream->queue.empty()) {
      CUstream_st::Element element = std::move(stream->queue.front());
      stream->queue.pop_front();
      if (element.event != nullptr) {
        ++element.event->reached;
        break;
      }
      if (state.copies_fail != CUDA_SUCCESS) {
        state.dead = state.copies_fail;
        stream->queue.clear();
        return;
      }
      element.work();
    }
  }
}

CUresult enqueue(FakeState& state, CUstream stream, std::function<void()> work) {
  if (state.dead != CUDA_SUCCESS) return state.dead;
  if (pushed().empty()) return state.misused("work without a context", CUDA_ERROR_INVALID_CONTEXT);
  if (state.streams.count(stream) == 0) return state.misused("work for no stream", CUDA_ERROR_INVALID_HANDLE);
  stream->queue.push_back({std::move(work), nullptr});
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace clustar::tests

using clustar::tests::FakeCall;
using clustar::tests::FakeMemory;
using clustar::tests::FakeState;

EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FakeCall call("cuStreamCreate");
  if (call.refused()) return call.answer();
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != CU_STREAM_NON_BLOCKING) {
    return call.state().misused("a stream that waits for the default one", CUDA_ERROR_INVALID_VALUE);
  }
  *stream = new CUstream_st;
  call.state().streams.insert(*stream);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy(CUstream stream) {
  FakeCall call("cuStreamDestroy");
  if (call.state().streams.erase(stream) == 0) {
    return call.state().misused("no such stream ends", CUDA_ERROR_INVALID_HANDLE);
  }
  delete stream;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  FakeCall call("cuEventCreate");
  if (call.refused()) return call.answer();
  if (flags != CU_EVENT_DISABLE_TIMING) {
    return call.state().misused("an event that takes the time", CUDA_ERROR_INVALID_VALUE);
  }
  *event = new CUevent_st;
  call.state().events.insert(*event);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent event) {
  FakeCall call("cuEventDestroy");
  if (call.state().events.erase(event) == 0) {
    return call.state().misused("no such event ends", CUDA_ERROR_INVALID_HANDLE);
  }
  delete event;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  FakeCall call("cuEventRecord");
  FakeState& state = call.state();
  if (call.refused()) return call.answer();
  if (state.dead != CUDA_SUCCESS) return state.dead;
  if (event->recorded != event->reached) state.misused("an event recorded again before it was reached", CUDA_SUCCESS);
  ++event->recorded;
  stream->queue.push_back({nullptr, event});
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent event) {
  FakeCall call("cuEventQuery");
  FakeState& state = call.state();
  if (call.refused()) return call.answer();
  clustar::tests::pass_time(state);
  if (state.dead != CUDA_SUCCESS) return state.dead;
  return event->reached == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamQuery(CUstream stream) {
  FakeCall call("cuStreamQuery");
  FakeState& state = call.state();
  if (call.refused()) return call.answer();
  clustar::tests::pass_time(state);
  if (state.dead != CUDA_SUCCESS) return state.dead;
  return stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr* at, std::size_t bytes) {
  FakeCall call("cuMemAlloc");
  if (call.refused()) return call.answer();
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  FakeMemory& added = call.state().memories.emplace_back();
  added.name = "(device)";
  added.base = static_cast<std::byte*>(mapped);
  added.size = bytes;
  added.attributes[CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = 1;
  added.attributes[CU_POINTER_ATTRIBUTE_IS_MANAGED] = 0;
  *at = reinterpret_cast<CUdeviceptr>(mapped);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree(CUdeviceptr at) {
  FakeCall call("cuMemFree");
  const auto freed = call.state().memories.remove_if([&](const FakeMemory& one) {
    if (one.base != reinterpret_cast<std::byte*>(at) || (one.name != "(device)" && one.name != "(made)")) return false;
    munmap(one.base, one.size);
    return true;
  });
  return freed == 1 ? CUDA_SUCCESS : call.state().misused("memory freed that is not there", CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  FakeCall call("cuMemHostAlloc");
  if (call.refused()) return call.answer();
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  FakeMemory& added = call.state().memories.emplace_back();
  added.name = "(pinned)";
  added.type = "host";
  added.base = static_cast<std::byte*>(*memory);
  added.size = bytes;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void* memory) {
  FakeCall call("cuMemFreeHost");
  FakeState& state = call.state();
  const auto freed = state.memories.remove_if([&](const FakeMemory& one) {
    if (one.base != memory || one.name != "(pinned)") return false;
    // Gone, so that who still uses it is found out.
    munmap(one.base, one.size);
    return true;
  });
  return freed == 1 ? CUDA_SUCCESS : state.misused("memory freed that is not pinned", CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FakeCall call("cuMemcpyAsync", to);
  FakeState& state = call.state();
  if (call.refused()) return call.answer();
  // Of pageable memory the driver copies by itself, and waits.
  for (const CUdeviceptr side : {to, from}) {
    const FakeMemory* memory = state.holding(side, bytes);
    if (memory == nullptr || memory->type == "none") {
      return state.misused("a copy of memory that CUDA does not know", CUDA_ERROR_INVALID_VALUE);
    }
  }
  return clustar::tests::enqueue(
      state, stream, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
}
