// Copies between host memory and a GPU's that nobody waits for: what a transport needs whose NIC does not reach GPU
// memory.
//
// Thread rule: one thread at a time.
// Waiting rule: to begin a copy and to ask for one waits for nothing: behind NCCL's own kernel, which waits for the
// caller, it would wait forever. host_buffer() and the end of a HostBuffer may wait for all that the device does: they
// are for setup and teardown only, never for where data moves.
// Error rule: what the driver says ends the object: no copy begins after it. Copies that had begun go on and are asked
// for as before, because the owner of their memory must know when it is free. Arguments that are wrong
// (kInvalidArgument) end nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "gdr/memory.h"
#include "transport/base/result.h"

namespace clustar::gdr {

// Host memory that copies may use; pinned where that matters. It may end before copies that use it do: its memory is
// then kept until they have ended.
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

  // Waits for copies under way, about a second at most. What has not ended by then may still write: what belongs to it
  // on the host's side is never freed. (EmulatedCopy does not wait: what has not ended writes nothing.)
  virtual ~DeviceCopy() = default;
  virtual const char* name() const = 0;
  // Outlives no DeviceCopy. May wait for the device. Errors: there is no such memory, which ends nothing; or the
  // driver's, earlier.
  virtual Result<std::unique_ptr<HostBuffer>> host_buffer(std::size_t bytes) = 0;

  // Begin a copy of `bytes` > 0; the host's side is within a HostBuffer of this object. Nothing: no room, try again
  // after others have ended. Errors: kInvalidArgument; or the driver's, now or earlier: nothing begins any more.
  virtual Result<std::optional<Ticket>> to_device(std::byte* device, const std::byte* host, std::size_t bytes) = 0;
  virtual Result<std::optional<Ticket>> to_host(std::byte* host, const std::byte* device, std::size_t bytes) = 0;
  // True, any number of times: the copy has ended, its bytes are where they belong, visible to kernels that start later
  // and to readers of the host's side. False: it may be under way.
  // Errors: kInvalidArgument: no copy has had this ticket. The driver's, when this is the first call that meets it: the
  // copy may be under way, ask again. After an error was told: the context is dead, no byte of any copy is written.
  virtual Result<bool> done(Ticket ticket) = 0;
};

// Copies by the GPU whose memory it is. May wait for the device, as host_buffer(): for setup only.
using MakeCopy = std::function<Result<std::unique_ptr<DeviceCopy>>(const MemoryRef& memory)>;

}  // namespace clustar::gdr
