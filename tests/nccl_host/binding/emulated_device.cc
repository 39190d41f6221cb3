#include "tests/nccl_host/binding/emulated_device.h"

#include <cuda.h>

#include "tests/nccl_host/runtime/device.h"

namespace nccl_host {

Memory& DeviceMemory() { return TheDevice().memory(); }
std::shared_ptr<Stream> StreamOf(cudaStream_t handle) { return TheDevice().StreamOf(handle); }
cudaStream_t NewStream() { return static_cast<cudaStream_t>(TheDevice().NewStream()); }
bool DestroyStream(cudaStream_t handle) { return TheDevice().DestroyStream(handle); }
void SynchronizeAllStreams() { TheDevice().SynchronizeAllStreams(); }

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
