// Devices, contexts, memory and exports of the fake driver, and what tests tell it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/gdr/fake_libcuda/fake_cuda.h"
#include "tests/gdr/fake_libcuda/state.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace clustar::tests {
namespace {

const FakeMemory* named(FakeState& state, const std::string& name) {
  for (const FakeMemory& memory : state.memories) {
    if (memory.name == name) return &memory;
  }
  return nullptr;
}

FakeState& locked(std::unique_lock<std::recursive_mutex>& lock) {
  lock = std::unique_lock(fake_state().mutex);
  return fake_state();
}

std::string load(const std::string& path) {
  std::unique_lock<std::recursive_mutex> lock;
  return load_fixture(locked(lock), path);
}

std::byte* memory(const std::string& name) {
  std::unique_lock<std::recursive_mutex> lock;
  const FakeMemory* found = named(locked(lock), name);
  return found == nullptr ? nullptr : found->base;
}

std::byte* allocate(std::size_t bytes) {
  std::unique_lock<std::recursive_mutex> lock;
  FakeState& state = locked(lock);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  FakeMemory& added = state.memories.emplace_back();
  added.base = static_cast<std::byte*>(mapped);
  added.size = bytes;
  return added.base;
}

void hold(bool on) {
  std::unique_lock<std::recursive_mutex> lock;
  locked(lock).held = on;
}

void copies_fail(const std::string& result) {
  std::unique_lock<std::recursive_mutex> lock;
  locked(lock).copies_fail = result_named(result);
}

void answer(const std::string& function, const std::string& results) {
  std::unique_lock<std::recursive_mutex> lock;
  if (const std::string problem = add_answer(locked(lock), function, results); !problem.empty()) {
    fake_state().misuse = problem;
  }
}

std::size_t calls(const std::string& function) {
  std::unique_lock<std::recursive_mutex> lock;
  return locked(lock).calls[function];
}

std::size_t live(const std::string& what) {
  std::unique_lock<std::recursive_mutex> lock;
  FakeState& state = locked(lock);
  if (what == "streams") return state.streams.size();
  if (what == "events") return state.events.size();
  std::size_t count = 0;
  if (what == "pinned" || what == "device") {
    for (const FakeMemory& one : state.memories) count += one.name == "(" + what + ")" ? 1 : 0;
  } else {
    for (const FakeDevice& device : state.devices) count += static_cast<std::size_t>(device.retained);
  }
  return count;
}

std::size_t depth() { return pushed().size(); }

bool sync_memops(const std::string& name) {
  std::unique_lock<std::recursive_mutex> lock;
  const FakeMemory* found = named(locked(lock), name);
  return found != nullptr && found->sync_memops;
}

void capture(bool on) {
  std::unique_lock<std::recursive_mutex> lock;
  locked(lock).capturing = on;
}

bool relaxed() { return capture_mode() == CU_STREAM_CAPTURE_MODE_RELAXED; }

// Stricter than a driver, which refuses what may wait or what works on the default stream, and leaves the rest.
bool breaks_captures(const std::string& function) {
  if (function.find("Capture") != std::string::npos) return false;
  for (const char* prefix : {"cuMem", "cuEvent", "cuStream", "cuFlush", "cuPointer", "cuDevicePrimaryCtxRe"}) {
    if (function.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

std::string misuse() {
  std::unique_lock<std::recursive_mutex> lock;
  return locked(lock).misuse;
}

FakeDevice* device_at(FakeState& state, int device) {
  if (device < 0 || static_cast<std::size_t>(device) >= state.devices.size()) return nullptr;
  return &state.devices[static_cast<std::size_t>(device)];
}

}  // namespace

FakeState& fake_state() {
  // Never destroyed: threads and destructors of others may still call.
  static FakeState& state = *new FakeState;
  return state;
}

CUstreamCaptureMode& capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

std::vector<CUcontext>& pushed() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

FakeMemory* FakeState::holding(CUdeviceptr address, std::size_t bytes) {
  const auto* at = reinterpret_cast<const std::byte*>(address);
  for (FakeMemory& one : memories) {
    if (at >= one.base && bytes <= one.size && static_cast<std::size_t>(at - one.base) <= one.size - bytes) return &one;
  }
  return nullptr;
}

CUresult FakeState::misused(const std::string& what, CUresult result) {
  if (misuse.empty()) misuse = what;
  return result;
}

FakeCall::FakeCall(const char* function, CUdeviceptr address, long long flags)
    : state_(fake_state()), lock_(state_.mutex) {
  ++state_.calls[function];
  if (!state_.loaded) {
    // Programs of their own name their fixture by the environment.
    const char* path = std::getenv("CLUSTAR_FAKE_CUDA_DRIVER");
    const std::string problem = load_fixture(state_, path == nullptr ? "" : path);
    if (!problem.empty()) {
      std::fprintf(stderr, "fake libcuda: %s\n", problem.c_str());
      std::abort();
    }
  }
  if (state_.capturing && capture_mode() != CU_STREAM_CAPTURE_MODE_RELAXED && breaks_captures(function)) {
    answer_ = state_.misused(std::string(function) + " broke a capture", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return;
  }
  for (FakeAnswer& one : state_.answers) {
    if (one.function != function || (one.flags >= 0 && one.flags != flags)) continue;
    const FakeMemory* held = state_.holding(address);
    if (!one.memory.empty() && (held == nullptr || held->name != one.memory)) continue;
    answer_ = one.results.front();
    if (one.results.size() > 1) one.results.pop_front();
    return;
  }
}

}  // namespace clustar::tests

using clustar::tests::fake_state;
using clustar::tests::FakeCall;
using clustar::tests::FakeDevice;
using clustar::tests::FakeMemory;
using clustar::tests::FakeState;

EXPORT const clustar::tests::FakeCuda fake_cuda;
const clustar::tests::FakeCuda fake_cuda = {
    clustar::tests::load,        clustar::tests::memory,      clustar::tests::allocate, clustar::tests::hold,
    clustar::tests::copies_fail, clustar::tests::answer,      clustar::tests::calls,    clustar::tests::live,
    clustar::tests::depth,       clustar::tests::sync_memops, clustar::tests::capture,  clustar::tests::relaxed,
    clustar::tests::misuse};

EXPORT CUresult cuInit(unsigned) { return FakeCall("cuInit").answer(); }

EXPORT CUresult cuGetErrorName(CUresult result, const char** name) {
  *name = clustar::tests::name_of_result(result);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
  FakeCall call("cuDriverGetVersion");
  *version = call.state().version;
  return call.answer();
}

EXPORT CUresult cuDeviceGetCount(int* count) {
  FakeCall call("cuDeviceGetCount");
  *count = static_cast<int>(call.state().devices.size());
  return call.answer();
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FakeCall call("cuDeviceGet");
  if (call.refused()) return call.answer();
  *device = ordinal;
  return clustar::tests::device_at(call.state(), ordinal) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  FakeCall call("cuDeviceGetPCIBusId");
  const FakeDevice* found = clustar::tests::device_at(call.state(), device);
  if (found == nullptr || call.refused()) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<std::size_t>(length), "%s", found->address.c_str());
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  FakeCall call("cuDeviceGetAttribute");
  const FakeDevice* found = clustar::tests::device_at(call.state(), device);
  if (found == nullptr || call.refused()) return CUDA_ERROR_INVALID_DEVICE;
  const auto known = found->attributes.find(attribute);
  if (known == found->attributes.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = known->second;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  FakeCall call("cuDevicePrimaryCtxGetState");
  const FakeDevice* found = clustar::tests::device_at(call.state(), device);
  if (found == nullptr || call.refused()) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = found->active || found->retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FakeCall call("cuDevicePrimaryCtxRetain");
  FakeDevice* found = clustar::tests::device_at(call.state(), device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (call.refused()) return call.answer();
  ++found->retained;
  *context = &found->primary;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  FakeCall call("cuDevicePrimaryCtxRelease");
  FakeDevice* found = clustar::tests::device_at(call.state(), device);
  if (found == nullptr || found->retained == 0) {
    return call.state().misused("a primary context released more often than retained", CUDA_ERROR_INVALID_CONTEXT);
  }
  --found->retained;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  FakeCall call("cuCtxPushCurrent");
  if (context == nullptr || call.refused()) return CUDA_ERROR_INVALID_CONTEXT;
  clustar::tests::pushed().push_back(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext* context) {
  FakeCall call("cuCtxPopCurrent");
  if (clustar::tests::pushed().empty()) return call.state().misused("popped from nothing", CUDA_ERROR_INVALID_CONTEXT);
  *context = clustar::tests::pushed().back();
  clustar::tests::pushed().pop_back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  const FakeCall call("cuCtxGetCurrent");
  *context = clustar::tests::pushed().empty() ? nullptr : clustar::tests::pushed().back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  const FakeCall call("cuCtxGetDevice");
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = clustar::tests::pushed().back()->device;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FakeCall call("cuThreadExchangeStreamCaptureMode");
  if (call.refused()) return call.answer();
  std::swap(*mode, clustar::tests::capture_mode());
  return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  FakeCall call("cuPointerGetAttribute", address);
  if (call.refused()) return call.answer();
  const FakeMemory* memory = call.state().holding(address);
  if (memory == nullptr || memory->type == "none") return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext*>(data) = memory->context; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(data) = memory->device; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = memory->type == "host" ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    default: break;
  }
  const auto known = memory->attributes.find(attribute);
  if (known == memory->attributes.end()) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<bool*>(data) = known->second != 0;  // one byte, as the driver's
  return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  FakeCall call("cuPointerSetAttribute", address);
  if (call.refused()) return call.answer();
  FakeMemory* memory = call.state().holding(address);
  if (memory == nullptr || memory->type != "device" || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->sync_memops = *static_cast<const unsigned*>(value) != 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  FakeCall call("cuMemGetAddressRange", address);
  if (call.refused()) return call.answer();
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  const FakeMemory* memory = call.state().holding(address);
  if (memory == nullptr || memory->type == "none") return CUDA_ERROR_INVALID_VALUE;
  const auto begin = reinterpret_cast<CUdeviceptr>(memory->base);
  const std::size_t piece = memory->piece == 0 ? memory->size : memory->piece;
  *base = begin + (address - begin) / piece * piece;
  *size = piece;
  return CUDA_SUCCESS;
}

#ifndef FAKE_CUDA_BEFORE_11_3
EXPORT CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, std::size_t size, CUmemRangeHandleType,
                                              unsigned long long flags) {
  FakeCall call("cuMemGetHandleForAddressRange", address, static_cast<long long>(flags));
  FakeState& state = call.state();
  if (call.refused()) return call.answer();
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (address % page != 0 || size % page != 0) {
    return state.misused("an export of other than whole pages", CUDA_ERROR_INVALID_VALUE);
  }
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  const FakeMemory* memory = state.holding(address);
  const std::size_t whole = memory == nullptr ? 0 : (memory->size + page - 1) / page * page;
  const std::size_t before = memory == nullptr ? 0 : address - reinterpret_cast<CUdeviceptr>(memory->base);
  if (memory == nullptr || memory->type != "device" || before + size > whole) return CUDA_ERROR_INVALID_VALUE;
  const int fd = memfd_create("fake-dma-buf", MFD_CLOEXEC);
  if (fd < 0) return state.when_full;
  // A copy: what is exported begins where the range does, which no mapping of the same memory would.
  if (write(fd, reinterpret_cast<const void*>(address), size) != static_cast<ssize_t>(size)) {
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *static_cast<int*>(handle) = fd;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope scope) {
  FakeCall call("cuFlushGPUDirectRDMAWrites");
  if (call.refused()) return call.answer();
  if (clustar::tests::pushed().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  return scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
#endif
