#include "tests/nccl_host/binding/emulated_device.h"

#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

namespace nccl_host {
namespace {

struct Streams {
  std::mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<Stream>> all;
  std::shared_ptr<Stream> standard = std::make_shared<Stream>();
};

// Never destroyed: NCCL's threads may still use them while the process ends.
Streams& All() {
  static auto* streams = new Streams;
  return *streams;
}

}  // namespace

Memory& DeviceMemory() {
  static auto* memory = new Memory;
  return *memory;
}

std::shared_ptr<Stream> StreamOf(cudaStream_t handle) {
  Streams& streams = All();
  std::lock_guard lock(streams.mutex);
  const auto found = streams.all.find(handle);
  return found == streams.all.end() ? streams.standard : found->second;
}

cudaStream_t NewStream() {
  Streams& streams = All();
  auto stream = std::make_shared<Stream>();
  const auto handle = reinterpret_cast<cudaStream_t>(stream.get());
  std::lock_guard lock(streams.mutex);
  streams.all[handle] = std::move(stream);
  return handle;
}

bool DestroyStream(cudaStream_t handle) {
  Streams& streams = All();
  std::shared_ptr<Stream> ended;
  std::lock_guard lock(streams.mutex);
  const auto found = streams.all.find(handle);
  if (found == streams.all.end()) return false;
  ended = std::move(found->second);
  streams.all.erase(found);
  // CUDA returns at once and lets the work end; a thread that an abort must end first would hold up the caller here.
  std::thread([last = std::move(ended)]() mutable { last.reset(); }).detach();
  return true;
}

void SynchronizeAllStreams() {
  Streams& streams = All();
  std::vector<std::shared_ptr<Stream>> all{streams.standard};
  {
    std::lock_guard lock(streams.mutex);
    for (const auto& [handle, stream] : streams.all) all.push_back(stream);
  }
  for (const auto& stream : all) stream->Synchronize();
}

// As an H100 has them, where NCCL looks; all that it need not use (multicast, cuMem, GPUDirect by dma-buf) is 0.
// GPUDirect RDMA is there: whether NCCL takes it is up to what the plugin says of its devices.
int DeviceAttribute(int attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 233472;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 232448;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: return 1;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: return 1;
    default: return 0;
  }
}

}  // namespace nccl_host
