// Emulation, for tests and CLUSTAR_GDR_EMULATE: host memory plays the GPU's, and copies end some polls later. No GPU,
// no CUDA, and nothing measured with it says anything of one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gdr/device_copy.h"
#include "transport/base/rng.h"

namespace clustar::gdr {

// The bytes of a copy move in the call of done() that says so, never before: an early reader reads what was there. Each
// copy takes a number of calls of its own, so copies end in another order than they began, the same for the same seed.
// Copies that have not ended when the object ends move nothing. No driver, so no error ends the object.
class EmulatedCopy final : public DeviceCopy {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint32_t most_polls = 3;       // a copy is done at the 1st .. most_polls-th question; above 0
    std::size_t most_outstanding = 16;  // above 0
    // Of all its buffers together; more is refused, as a driver refuses pinning. Not touched, they cost nothing.
    std::size_t most_host_bytes = std::size_t{4} << 30;
  };

  explicit EmulatedCopy(const Options& options) : options_(options), random_(options.seed) {}
  ~EmulatedCopy() override = default;

  const char* name() const override { return "emulated"; }
  // Errors: above most_host_bytes.
  Result<std::unique_ptr<HostBuffer>> host_buffer(std::size_t bytes) override;
  // Errors: a host side that is not within a live buffer of this object.
  Result<std::optional<Ticket>> to_device(std::byte* device, const std::byte* host, std::size_t bytes) override;
  Result<std::optional<Ticket>> to_host(std::byte* host, const std::byte* device, std::size_t bytes) override;
  // Errors: no copy has had this ticket.
  Result<bool> done(Ticket ticket) override;

 private:
  class Buffer;
  struct Copy {
    Ticket ticket;
    std::uint32_t polls;  // that are left
    std::byte* to;
    const std::byte* from;  // null: zeroes
    std::size_t bytes;
    std::shared_ptr<std::byte[]> host;  // a buffer that ends before the copy does
  };
  struct Memory {
    std::span<std::byte> bytes;
    std::shared_ptr<std::byte[]> owner;
  };

  Result<std::optional<Ticket>> begin(std::byte* to, const std::byte* from, std::size_t bytes,
                                      std::shared_ptr<std::byte[]> host);
  Result<std::shared_ptr<std::byte[]>> owner_of(const std::byte* host, std::size_t bytes) const;

  const Options options_;
  Rng random_;
  Ticket next_ = 1;
  std::vector<Copy> copies_;
  std::vector<Memory> buffers_;
  std::size_t host_bytes_ = 0;
};

}  // namespace clustar::gdr
