// The framing of one datagram. The length of a header is not fixed, so one byte tells it.
//
//   0        1                1 + H                      N   (N = length of the datagram, from UDP or from UDP_GRO)
//   +--------+-----------------+--------------------------+
//   |   H    |  header, H bytes |  payload, N - 1 - H bytes |      1 <= H <= 96,  1 + H <= N
//   +--------+-----------------+--------------------------+
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "transport/io/packet_io.h"

namespace clustar::transport::io::udp {

inline constexpr std::size_t kFrameBytes = 1;

struct Frame {
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
};

// Nothing for what no sender of ours makes.
inline std::optional<Frame> parse_frame(std::span<const std::byte> datagram) {
  if (datagram.empty()) return std::nullopt;
  const auto header = std::to_integer<std::size_t>(datagram[0]);
  if (header == 0 || header > Header::kMax || kFrameBytes + header > datagram.size()) return std::nullopt;
  return Frame{datagram.subspan(kFrameBytes, header), datagram.subspan(kFrameBytes + header)};
}

}  // namespace clustar::transport::io::udp
