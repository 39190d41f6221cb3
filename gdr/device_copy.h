// Copies between host memory and a GPU's that nobody waits for: what a transport needs whose NIC does not reach GPU
// memory.
//
// Thread rule: one thread at a time. Nothing here may wait for a kernel: behind NCCL's own, which waits for the caller,
// it would wait for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/base/result.h"

namespace clustar::gdr {

// Host memory that copies may use; pinned where that matters.
class HostBuffer {
 public:
  HostBuffer() = default;
  virtual ~HostBuffer() = default;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  virtual std::span<std::byte> bytes() const = 0;
};

class DeviceCopy {
 public:
  using Ticket = std::uint64_t;

  virtual ~DeviceCopy() = default;
  virtual const char* name() const = 0;
  // Outlives no DeviceCopy.
  virtual Result<std::unique_ptr<HostBuffer>> host_buffer(std::size_t bytes) = 0;

  // Begin a copy of `bytes` > 0; the host's side is within a HostBuffer of this object. Nothing: no room, try again
  // after others have ended. Errors end the use of this object: what the driver says, and no byte of later copies is
  // written.
  virtual Result<std::optional<Ticket>> to_device(std::byte* device, const std::byte* host, std::size_t bytes) = 0;
  virtual Result<std::optional<Ticket>> to_host(std::byte* host, const std::byte* device, std::size_t bytes) = 0;
  virtual Result<std::optional<Ticket>> zero(std::byte* device, std::size_t bytes) = 0;
  // All bytes are where they belong, visible to kernels that start later and to readers of the host's side. Never
  // waits.
  virtual Result<bool> done(Ticket ticket) = 0;
};

}  // namespace clustar::gdr
