// The cuda* functions that NCCL's host code calls.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo

#include "tests/nccl_host/binding/driver.h"
#include "tests/nccl_host/binding/emulated_device.h"
#include "tests/nccl_host/binding/unsupported.h"

#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

using namespace nccl_host;

namespace {

constexpr const char* kBusId = "0000:65:00.0";
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t Allocate(void** pointer, size_t size, MemoryKind kind) {
  *pointer = DeviceMemory().Allocate(size, kind);
  return Result(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t Free(void* pointer) {
  return Result(!pointer || DeviceMemory().Free(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

Event& EventOf(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

}  // namespace

CLUSTAR_EXPORT cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaSetDevice(int device) {
  return Result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
CLUSTAR_EXPORT cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaDriverGetVersion(int* version) { return *version = kCudaVersion, cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) { return *version = kCudaVersion, cudaSuccess; }
CLUSTAR_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string text;
  text = "emulated CUDA error " + std::to_string(error);
  return text.c_str();
}
CLUSTAR_EXPORT cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
CLUSTAR_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return *value = DeviceAttribute(attribute), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Emulated device");
  properties->major = DeviceAttribute(cudaDevAttrComputeCapabilityMajor);
  properties->minor = DeviceAttribute(cudaDevAttrComputeCapabilityMinor);
  properties->multiProcessorCount = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  properties->pciBusID = 0x65;
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int) {
  std::snprintf(text, static_cast<size_t>(size), "%s", kBusId);
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaDeviceGetByPCIBusId(int* device, const char*) { return *device = 0, cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaDeviceSynchronize() { return SynchronizeAllStreams(), cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }

CLUSTAR_EXPORT cudaError_t cudaMalloc(void** pointer, size_t size) {
  return Allocate(pointer, size, MemoryKind::kDevice);
}
CLUSTAR_EXPORT cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t) {
  return Allocate(pointer, size, MemoryKind::kDevice);
}
CLUSTAR_EXPORT cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t, cudaStream_t) {
  return Allocate(pointer, size, MemoryKind::kDevice);
}
CLUSTAR_EXPORT cudaError_t cudaFree(void* pointer) { return Free(pointer); }
CLUSTAR_EXPORT cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  StreamOf(stream)->Add([pointer] { DeviceMemory().Free(pointer); });
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
  return Allocate(pointer, size, MemoryKind::kHost);
}
CLUSTAR_EXPORT cudaError_t cudaFreeHost(void* pointer) { return Free(pointer); }
CLUSTAR_EXPORT cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned) {
  return Result(DeviceMemory().Register(pointer, size) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
CLUSTAR_EXPORT cudaError_t cudaHostUnregister(void* pointer) {
  return Result(DeviceMemory().Unregister(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
CLUSTAR_EXPORT cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return *device = host, cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  const auto range = DeviceMemory().Find(pointer);
  attributes->device = range ? 0 : cudaInvalidDeviceId;
  if (!range) return cudaSuccess;
  attributes->type = range->kind == MemoryKind::kDevice ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (range->kind != MemoryKind::kDevice) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  static char only;
  return *pool = reinterpret_cast<cudaMemPool_t>(&only), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

CLUSTAR_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  StreamOf(nullptr)->Synchronize();
  std::memcpy(to, from, size);
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind,
                                           cudaStream_t stream) {
  if (DeviceMemory().Find(from)) {
    StreamOf(stream)->Add([=] { std::memcpy(to, from, size); });
    return cudaSuccess;
  }
  // Pageable memory is read before the call returns: the caller may reuse it at once.
  const auto* begin = static_cast<const char*>(from);
  StreamOf(stream)->Add(
      [to, copy = std::vector<char>(begin, begin + size)] { std::memcpy(to, copy.data(), copy.size()); });
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaMemset(void* to, int value, size_t size) {
  StreamOf(nullptr)->Synchronize();
  std::memset(to, value, size);
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  StreamOf(stream)->Add([=] { std::memset(to, value, size); });
  return cudaSuccess;
}

CLUSTAR_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = NewStream(), cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = NewStream(), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Result(DestroyStream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
CLUSTAR_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return StreamOf(stream)->Synchronize(), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return StreamOf(stream)->Idle() ? cudaSuccess : cudaErrorNotReady;
}
CLUSTAR_EXPORT cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return *id = reinterpret_cast<unsigned long long>(StreamOf(stream).get()), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return EventOf(event).HoldBack(*StreamOf(stream)), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  StreamOf(stream)->Add([=] { function(argument); });
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
// No stream is ever captured. Versions 2 and 3 differ in arguments after these, which stay untouched then.
extern "C" __attribute__((visibility("default"))) cudaError_t NotCapturing(cudaStream_t,
                                                                           cudaStreamCaptureStatus* status,
                                                                           unsigned long long* id) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  return cudaSuccess;
}
#define CLUSTAR_ALIAS(name) __asm__(".globl " #name "\n.set " #name ", NotCapturing\n")
CLUSTAR_ALIAS(cudaStreamGetCaptureInfo);
CLUSTAR_ALIAS(cudaStreamGetCaptureInfo_v2);
CLUSTAR_ALIAS(cudaStreamGetCaptureInfo_v3);
CLUSTAR_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

CLUSTAR_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
CLUSTAR_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &EventOf(event), cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return EventOf(event).Record(StreamOf(stream)), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  return EventOf(event).Done() ? cudaSuccess : cudaErrorNotReady;
}
CLUSTAR_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) { return EventOf(event).Synchronize(), cudaSuccess; }

CLUSTAR_EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
CLUSTAR_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}
// A kernel is launched by its symbol's address: the driver's launch looks its name up.
CLUSTAR_EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  return *function = reinterpret_cast<cudaFunction_t>(const_cast<void*>(symbol)), cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                            unsigned long long,
                                                            cudaDriverEntryPointQueryResult* result) {
  *function = DriverEntryPoint(name);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
CLUSTAR_EXPORT cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                                   cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, kCudaVersion, flags, result);
}

// Ways that NCCL only takes with graphs, copy engines, arrays or other processes' memory; it reports the error.
#define CLUSTAR_NOT_EMULATED(name)                                             \
  extern "C" __attribute__((visibility("default"))) int Unsupported_##name() { \
    std::fprintf(stderr, "nccl-host: not emulated: %s\n", #name);              \
    return Result(cudaErrorNotSupported);                                      \
  }                                                                            \
  __asm__(".globl " #name "\n.set " #name ", Unsupported_" #name "\n")
CLUSTAR_NOT_EMULATED(cudaUserObjectCreate);
CLUSTAR_NOT_EMULATED(cudaGraphRetainUserObject);
CLUSTAR_NOT_EMULATED(cudaGraphAddEventRecordNode);
CLUSTAR_NOT_EMULATED(cudaGraphAddDependencies);
CLUSTAR_NOT_EMULATED(cudaGraphAddDependencies_v2);
CLUSTAR_NOT_EMULATED(cudaGraphAddHostNode);
CLUSTAR_NOT_EMULATED(cudaGraphKernelNodeSetAttribute);
CLUSTAR_NOT_EMULATED(cudaStreamUpdateCaptureDependencies);
CLUSTAR_NOT_EMULATED(cudaStreamUpdateCaptureDependencies_v2);
CLUSTAR_NOT_EMULATED(cudaMemcpyBatchAsync);
CLUSTAR_NOT_EMULATED(cudaArrayGetInfo);
CLUSTAR_NOT_EMULATED(cudaDeviceEnablePeerAccess);
CLUSTAR_NOT_EMULATED(cudaIpcGetMemHandle);
CLUSTAR_NOT_EMULATED(cudaIpcOpenMemHandle);
CLUSTAR_NOT_EMULATED(cudaIpcCloseMemHandle);
