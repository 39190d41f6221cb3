#include "transport/io/dpdk/core/subnet.h"

#include <fmt/format.h>

#include <charconv>

namespace clustar::transport::io::dpdk {

std::optional<Ipv4> parse_ipv4_address(std::string_view text) {
  Ipv4 ip = 0;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (int i = 0; i < 4; ++i) {
    if (i > 0 && (at == end || *at++ != '.')) return std::nullopt;
    unsigned part = 0;
    const auto [next, error] = std::from_chars(at, end, part);
    if (error != std::errc() || part > 255 || next - at > 3) return std::nullopt;
    at = next;
    ip = ip << 8 | part;
  }
  if (at != end) return std::nullopt;
  return ip;
}

std::string to_text(Ipv4 ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 0xff, ip >> 8 & 0xff, ip & 0xff);
}

}  // namespace clustar::transport::io::dpdk
