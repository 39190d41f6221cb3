// The driver's face of the emulated device: a libcuda.so.1 with memory, streams on threads, modules and kernels. Its
// other face, the CUDA runtime, is in the libnccl.so.2 of scripts/nccl-host; a process that has both has one device.
#include <cuda.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gdr/launch/image.h"
#include "tests/gdr/emulated_device/block.h"
#include "tests/nccl_host/runtime/device.h"
#include "tests/nccl_host/runtime/event.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using clustar::emulated::Dim3;
using clustar::emulated::KernelEntry;
using nccl_host::Event;
using nccl_host::MemoryKind;
using nccl_host::TheDevice;

struct CUmod_st {
  std::vector<char> image;  // empty: kernels by name
};

namespace {

constexpr int kMultiprocessors = 4;  // few, since each of their blocks' threads is a fiber
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;

char primary_context;
thread_local std::vector<CUcontext> pushed;
// What a kernel broke: every later call answers it, as a GPU's context does.
std::atomic<CUresult> broken = CUDA_SUCCESS;
std::atomic<std::uint64_t> launches = 0;

const KernelEntry* entry_of(CUfunction function) { return reinterpret_cast<const KernelEntry*>(function); }
CUfunction function_of(const KernelEntry* entry) {
  return reinterpret_cast<CUfunction>(const_cast<KernelEntry*>(entry));
}
Event& event_of(CUevent event) { return *reinterpret_cast<Event*>(event); }

CUresult state() { return pushed.empty() ? CUDA_ERROR_INVALID_CONTEXT : broken.load(); }

template <class Work>
CUresult enqueue(CUstream stream, Work work) {
  if (const CUresult now = state(); now != CUDA_SUCCESS) return now;
  TheDevice().StreamOf(stream)->Add([work = std::move(work)] {
    if (broken == CUDA_SUCCESS) work();
  });
  return CUDA_SUCCESS;
}

// All of it within one allocation of the device.
bool on_device(CUdeviceptr at, std::size_t bytes) {
  const auto range = TheDevice().memory().Find(reinterpret_cast<const void*>(at));
  return range && range->kind == MemoryKind::kDevice && at - range->begin + bytes <= range->size;
}

}  // namespace

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult result, const char** name) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return CUDA_SUCCESS;
    case CUDA_ERROR_LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; return CUDA_SUCCESS;
    default: *name = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}
EXPORT CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(length), "Emulated device");
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = kMultiprocessors; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    default: *value = 0; break;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(&primary_context);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  pushed.push_back(context);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent(CUcontext* context) {
  if (pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = pushed.back();
  pushed.pop_back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = pushed.empty() ? nullptr : pushed.back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr* at, std::size_t bytes) {
  if (const CUresult now = state(); now != CUDA_SUCCESS) return now;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *at = reinterpret_cast<CUdeviceptr>(TheDevice().memory().Allocate(bytes, MemoryKind::kDevice));
  return *at != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT CUresult cuMemFree(CUdeviceptr at) {
  return TheDevice().memory().Free(reinterpret_cast<void*>(at)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// Of pageable memory, which is read before the call returns.
EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> staged(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  return enqueue(stream, [to, staged = std::move(staged)] {
    std::memcpy(reinterpret_cast<void*>(to), staged.data(), staged.size());
  });
}
EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (!on_device(to, bytes) || !on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
}
EXPORT CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (!on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr at, unsigned word, std::size_t count, CUstream stream) {
  if (!on_device(at, count * sizeof(word)) || at % sizeof(word) != 0) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] { std::fill_n(reinterpret_cast<unsigned*>(at), count, word); });
}
EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr at) {
  const auto range = TheDevice().memory().Find(reinterpret_cast<const void*>(at));
  if (!range || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(data) = range->kind == MemoryKind::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
  if (const CUresult now = state(); now != CUDA_SUCCESS) return now;
  *stream = static_cast<CUstream>(TheDevice().NewStream());
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamDestroy(CUstream stream) {
  return TheDevice().DestroyStream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
EXPORT CUresult cuStreamQuery(CUstream stream) {
  if (!TheDevice().StreamOf(stream)->Idle()) return CUDA_ERROR_NOT_READY;
  return state();
}
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  event_of(event).HoldBack(*TheDevice().StreamOf(stream));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new Event);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventDestroy(CUevent event) {
  delete &event_of(event);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  event_of(event).Record(TheDevice().StreamOf(stream));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventQuery(CUevent event) { return event_of(event).Done() ? state() : CUDA_ERROR_NOT_READY; }

// Code for GPUs is not run; but a kernel that it lacks is not found, as on a GPU.
EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  auto* const made = new CUmod_st;
  if (magic == kFatbinMagic) {
    // As fatbinary.h of CUDA has it: magic, version, the header's size, that of what follows.
    std::uint16_t header = 0;
    std::uint64_t body = 0;
    std::memcpy(&header, static_cast<const char*>(image) + 6, sizeof(header));
    std::memcpy(&body, static_cast<const char*>(image) + 8, sizeof(body));
    made->image.assign(static_cast<const char*>(image), static_cast<const char*>(image) + header + body);
  } else if (std::strcmp(static_cast<const char*>(image), clustar::gdr::launch::kNoDeviceCode) != 0) {
    delete made;
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = made;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  delete module;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const KernelEntry* const entry = clustar::emulated::find_kernel(name);
  const std::vector<char>& image = module->image;
  const bool there = image.empty() || memmem(image.data(), image.size(), name, std::strlen(name)) != nullptr;
  *function = function_of(entry);
  return entry != nullptr && there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned, CUstream stream, void** arguments,
                               void**) {
  const Dim3 grid{grid_x, grid_y, grid_z};
  const Dim3 block{block_x, block_y, block_z};
  const unsigned long long threads = block.count();
  if (grid.count() == 0 || threads == 0 || threads > clustar::emulated::kMostThreads) return CUDA_ERROR_INVALID_VALUE;
  const KernelEntry* const entry = entry_of(function);
  // The caller's argument is read now.
  const auto* const first = static_cast<const char*>(arguments[0]);
  std::vector<std::max_align_t> argument(entry->argument_bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(argument.data(), first, entry->argument_bytes);
  // Another order of threads for each launch: a race shows as results that change.
  const std::uint64_t order = launches++;
  return enqueue(stream, [=, argument = std::move(argument)] {
    const std::string problem = clustar::emulated::run(*entry, grid, block, argument.data(), order);
    if (problem.empty()) return;
    std::fprintf(stderr, "emulated device: %s\n", problem.c_str());
    broken = CUDA_ERROR_LAUNCH_FAILED;
  });
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                        config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, arguments,
                        extra);
}
