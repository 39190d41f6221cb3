// The socket address by which an endpoint is known: gives the handle of the transport's listener to anybody who asks.
#pragma once

#include <array>
#include <vector>

#include "libfabric_shim/provider/core/wire.h"
#include "transport/api/transport.h"
#include "transport/base/time.h"
#include "transport/net/socket.h"

namespace clustar::libfabric_shim::provider {

class Reception {
 public:
  // Port 0: the kernel's choice. Error: the address is in use, or not this host's.
  static Result<Reception> open(const transport::net::Address& address, const transport::Handle& handle,
                                std::uint32_t eager_bytes, const Clock& clock);

  transport::net::Address address() const { return transport::net::local_address(listening_); }
  // Error: no descriptors.
  Result<void> progress();

 private:
  static constexpr std::size_t kMaxGuests = 256;  // the oldest is dropped for another one
  static constexpr Duration kPatience = std::chrono::seconds(10);
  struct Guest {
    transport::net::Socket socket;
    TimePoint until;
    std::size_t heard = 0;
    std::array<std::byte, Question::kSize> question{};
  };

  Reception(transport::net::Socket listening, const Clock& clock) : listening_(std::move(listening)), clock_(&clock) {}
  bool serve(Guest& guest) const;  // true: it may go

  transport::net::Socket listening_;
  const Clock* clock_;
  std::array<std::byte, Answer::kSize> answer_{};
  std::vector<Guest> guests_;
};

}  // namespace clustar::libfabric_shim::provider
