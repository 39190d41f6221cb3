// A socket address as it travels in handles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace clustar::transport::net {

struct Endpoint {
  bool ipv6 = false;
  std::uint16_t port = 0;
  std::array<std::byte, 16> address{};  // IPv4 in the first four bytes
};

}  // namespace clustar::transport::net
