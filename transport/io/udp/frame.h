// The framing of a datagram: one packet, or several small ones of the same path and class.
//
//   0        1                1 + H                      N   (N = length of the datagram, from UDP or from UDP_GRO)
//   +--------+-----------------+--------------------------+
//   |   H    |  header, H bytes |  payload, N - 1 - H bytes |      the last packet; 1 <= H <= Header::kMax
//   +--------+-----------------+--------------------------+
//
//   0        1        2        4                4 + H          4 + H + P
//   +--------+--------+--------+-----------------+--------------+
//   |   0    |   H    | P, BE  |  header, H bytes |   P bytes    |  ...   a packet with something behind it
//   +--------+--------+--------+-----------------+--------------+
//
//   | 0xff   |  padding: the rest of the datagram, which thereby is as long as its neighbours (UDP_SEGMENT)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/io/packet_io.h"

namespace clustar::transport::io::udp {

inline constexpr std::size_t kFrameBytes = 1;
inline constexpr std::size_t kPackedFrameBytes = 4;
inline constexpr std::byte kPadding{0xff};
static_assert(Header::kMax < 0xff);

// DSCP = traffic class << 3, the class selectors of RFC 2474; in the TOS byte it stands above the two bits of ECN.
constexpr std::uint8_t tos_of(std::uint8_t traffic_class, Ecn ecn) {
  return static_cast<std::uint8_t>(traffic_class << 5 | static_cast<std::uint8_t>(ecn));
}
constexpr std::uint8_t class_of(std::uint8_t tos) { return tos >> 5; }
constexpr Ecn ecn_of(std::uint8_t tos) { return static_cast<Ecn>(tos & 3); }

struct Frame {
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  std::size_t length = 0;  // of the datagram, with the framing
};

// The first packet of what is left of a datagram. Nothing for what no sender of ours makes.
inline std::optional<Frame> parse_frame(std::span<const std::byte> datagram) {
  if (datagram.empty()) return std::nullopt;
  const bool packed = datagram[0] == std::byte{0};
  const std::size_t framing = packed ? kPackedFrameBytes : kFrameBytes;
  if (datagram.size() <= framing) return std::nullopt;
  const auto header = std::to_integer<std::size_t>(datagram[packed ? 1 : 0]);
  if (header == 0 || header > Header::kMax || framing + header > datagram.size()) return std::nullopt;
  const std::size_t room = datagram.size() - framing - header;
  const std::size_t payload =
      packed ? std::to_integer<std::size_t>(datagram[2]) << 8 | std::to_integer<std::size_t>(datagram[3]) : room;
  if (payload > room) return std::nullopt;
  return Frame{datagram.subspan(framing, header), datagram.subspan(framing + header, payload),
               framing + header + payload};
}

}  // namespace clustar::transport::io::udp
