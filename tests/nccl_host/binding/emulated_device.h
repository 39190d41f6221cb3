#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "tests/nccl_host/runtime/event.h"
#include "tests/nccl_host/runtime/memory.h"
#include "tests/nccl_host/runtime/stream.h"

namespace nccl_host {

// The one emulated device of this process.
Memory& DeviceMemory();
// Of a handle; the default streams are one.
std::shared_ptr<Stream> StreamOf(cudaStream_t handle);
cudaStream_t NewStream();
bool DestroyStream(cudaStream_t handle);
void SynchronizeAllStreams();
int DeviceAttribute(int attribute);
inline constexpr int kCudaVersion = 13000;

// Launches a kernel of NCCL on the stream.
void LaunchNcclKernel(const void* arguments, size_t size, const std::shared_ptr<Stream>& stream);

}  // namespace nccl_host
