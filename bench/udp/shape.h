// What every strategy moves: segments of one header and one payload, each payload with a place of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace clustar::bench::udp {

inline constexpr std::size_t kHeaderBytes = 60;
inline constexpr std::size_t kColdBytes = 64 << 20;  // of the target: larger than the caches that one core has
inline constexpr std::size_t kMostUdpPayload = 65507;
inline constexpr std::size_t kMostSegments = 64;  // UDP_MAX_SEGMENTS of kernels before 6.9

struct Shape {
  std::size_t payload_bytes = 1408;
  std::uint64_t segments = 0;         // of the whole trial
  std::uint64_t window_segments = 0;  // sent and not yet credited, at most
  std::uint64_t swap_every = 0;       // of each so many bursts one is sent before the one in front of it; 0: none
  std::uint64_t read_every = 0;  // the receiver reads the payload of so many segments once they have come; 0: never
  std::size_t datagram_bytes() const { return kHeaderBytes + payload_bytes; }
  // Segments of one message that the kernel cuts (UDP_SEGMENT) or has joined (UDP_GRO).
  std::size_t burst() const {
    const std::size_t fit = kMostUdpPayload / datagram_bytes();
    return fit < kMostSegments ? fit : kMostSegments;
  }
  // Segment i belongs to place i % places(), and comes from the same place of one of two sources, so that two segments
  // of a place never have the same bytes.
  std::uint64_t places() const { return kColdBytes / payload_bytes; }
  std::size_t target_offset(std::uint64_t segment) const { return segment % places() * payload_bytes; }
  std::size_t source_offset(std::uint64_t segment) const {
    return target_offset(segment) + (segment / places() % 2) * kColdBytes;
  }
};

// A header begins with the number of its segment, in this machine's byte order: both ends are here.
inline std::uint64_t segment_of(const std::byte* header) {
  std::uint64_t segment = 0;
  std::memcpy(&segment, header, sizeof segment);
  return segment;
}

}  // namespace clustar::bench::udp
