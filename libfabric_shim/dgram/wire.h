// What two ends say to each other: the framing of a datagram, and the address of an end. Pure.
//
// A datagram:
//    0              8        9        10           10 + H                  N
//   +--------------+--------+--------+------------+-----------------------+
//   |  key, 8 B    |   H    | class  | header, H  | payload, N - 10 - H   |
//   +--------------+--------+--------+------------+-----------------------+
//    of its sender  1..128    0..7
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/address_blob.h"

namespace clustar::transport::ofi {

inline constexpr std::size_t kDatagramFrame = 10;
inline constexpr std::size_t kMostProvider = 8;  // characters that an address has for a provider's name
inline constexpr std::size_t kMostPaths = 16;

struct DatagramFrame {
  std::uint64_t key = 0;
  std::uint8_t traffic_class = 0;
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
};

// `out`: kDatagramFrame bytes.
void write_frame(std::span<std::byte> out, std::uint64_t key, std::size_t header_bytes, std::uint8_t traffic_class);
// Nothing: no sender of ours made it.
std::optional<DatagramFrame> parse_frame(std::span<const std::byte> datagram);

// An end, for its peers:
// | 1 | version      | 2 | max_packet | 8 | provider, zeroes behind | 8 | key | 1 | paths, P | 1 | length of an
// address, L | | L | address of path 0 | (L + 7) / 8 | which bytes of it differ, bit i: byte i | (P - 1) times those
// bytes |
struct EndAddress {
  std::string provider{};
  std::uint64_t key = 0;  // never 0; by which its datagrams are known
  std::uint16_t max_packet = 0;
  std::vector<std::vector<std::byte>> paths{};  // libfabric's addresses, of one length

  // Error kUnavailable: too long for a blob. All that open() makes have 1 to kMostPaths paths.
  Result<io::AddressBlob> serialize() const;
  // Error kRemote: damaged, or of another version.
  static Result<EndAddress> parse(const io::AddressBlob& blob);
};

}  // namespace clustar::transport::ofi
