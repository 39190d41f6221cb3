// NCCL's pointer types and what a device offers: which memory may be registered, and as what.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gdr/memory.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// NCCL_PTR_* of a set of gdr::bit(kind).
int ptr_support(std::uint32_t memory_kinds);

// What regMr's arguments mean: NCCL_PTR_HOST is kHost, NCCL_PTR_CUDA is kCuda. Error kInvalidArgument: a kind that
// `device` does not offer (the message says which it does, and its reason), another type, a range that no memory can
// have.
Result<gdr::MemoryRef> memory_of(const transport::DeviceProperties& device, void* data, std::size_t size, int type);

// The same for regMrDmaBuf: kDmaBuf, `size` bytes from `offset` of the dma-buf `fd`, at the device address `data`. `fd`
// stays the caller's, which closes it after the call. Error kInvalidArgument: as above; a type that is not
// NCCL_PTR_CUDA, `fd` not open, an end behind 2^64.
Result<gdr::MemoryRef> dma_buf_of(const transport::DeviceProperties& device, void* data, std::size_t size, int type,
                                  std::uint64_t offset, int fd);

}  // namespace clustar::nccl_plugin
