// NCCL and the CUDA runtime, opened while the program runs: clustar links neither. Their C ABI in our own words, as far
// as the trainer calls it.
#pragma once

#include <cstddef>
#include <string>

#include "bench/proxy/plugin_library.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct NcclUniqueId {
  char bytes[128];
};

// The start of ncclConfig_t as NCCL 2.27 has it; a later NCCL fills in the rest by itself.
struct NcclConfig {
  static constexpr int kUndefined = -2147483647 - 1;
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22700;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
};
static_assert(sizeof(NcclConfig) == 56);

inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclUint8 = 1;
inline constexpr int kNcclFloat16 = 6;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclBfloat16 = 9;
inline constexpr int kNcclSum = 0;

// ncclResult_t, cudaError_t and enumerations are int; ncclComm_t, cudaStream_t and cudaEvent_t void*.
struct NcclCalls {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank_config)(void** comm, int ranks, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*comm_get_async_error)(void* comm, int*) = nullptr;
  int (*comm_finalize)(void* comm) = nullptr;
  int (*comm_destroy)(void* comm) = nullptr;
  int (*comm_abort)(void* comm) = nullptr;
  int (*comm_register)(void* comm, void*, std::size_t, void** handle) = nullptr;
  int (*comm_deregister)(void* comm, void* handle) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, void* comm, void* stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int type, int op, void* comm, void* stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, void* comm, void* stream) = nullptr;
  int (*recv)(void*, std::size_t, int type, int peer, void* comm, void* stream) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(void* comm) = nullptr;
};

inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaNotReady = 600;
inline constexpr int kHostToDevice = 1;
inline constexpr int kDeviceToHost = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;

struct CudaCalls {
  int (*get_device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*get_device_properties)(void*, int) = nullptr;
  int (*malloc)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*host_register)(void*, std::size_t, unsigned) = nullptr;
  int (*host_unregister)(void*) = nullptr;
  int (*memcpy_async)(void*, const void*, std::size_t, int kind, void* stream) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_wait_event)(void* stream, void* event, unsigned) = nullptr;
  int (*event_create)(void**, unsigned) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_query)(void* event) = nullptr;
  int (*launch_host_function)(void* stream, void (*)(void*), void*) = nullptr;
  int (*get_last_error)() = nullptr;
  const char* (*get_error_string)(int) = nullptr;
};

// Stays open for the life of the process: NCCL's threads may outlast a communicator that was aborted.
struct NcclLibrary {
  std::string path;  // where the loader found it
  NcclCalls nccl;
  CudaCalls cuda;

  // `path` empty: libnccl.so.2. The CUDA runtime is that of the same file where it has one, as an emulated device's
  // has, otherwise libcudart. Errors say what was looked for and what to do.
  static Result<NcclLibrary> open(const std::string& path);

  std::string version() const;  // as 2.28.9
  // At least 1.
  Result<int> devices() const;
  // Of `device`; kEmulatedDevice where host memory and threads play the GPU.
  Result<std::string> device_name(int device) const;
};
inline constexpr const char* kEmulatedDevice = "Emulated device";

}  // namespace clustar::bench::trainer
