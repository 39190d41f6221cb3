// What a datagram over UD says beside its header and payload. Pure.
//
//  immediate data (network order):  | 0xc1 | 0 | header bytes (16 bit) |
//  traffic class / TOS byte:        | traffic class (3 bits) | 0 0 0 | ECN (2 bits) |    as the UDP backend's
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/io/packet_io.h"
#include "transport/io/verbs/gid.h"

namespace clustar::transport::io::verbs {

// Where the paths of a peer are reached.
// | GID (16) | Q_Key (4) | count | queue pairs (3 each) |
struct UdAddress {
  Gid gid{};
  std::uint32_t q_key = 0;
  std::vector<std::uint32_t> queue_pairs{};  // one per path, 24 bits

  // Error kRemote: damaged.
  static Result<UdAddress> parse(const AddressBlob& blob);
  AddressBlob serialize() const;  // of at most 25 paths
  bool operator==(const UdAddress&) const = default;
};

// In front of what is received on UD. IPv4's header is half as long as IPv6's: the last 20 bytes are it, and the first
// 20 are anything.
inline constexpr std::size_t kNetworkHeader = 40;

constexpr std::uint8_t tos_of(std::uint8_t traffic_class, bool ect) {
  return static_cast<std::uint8_t>(traffic_class << 5 | static_cast<std::uint8_t>(ect ? Ecn::kEct0 : Ecn::kNotEct));
}
// The TOS bytes that a device sends with, by number: those of the eight classes, and those with a DSCP of a packet's
// own as they come.
class UdMarks {
 public:
  static constexpr std::size_t kMost = 32;
  static constexpr std::size_t of_class(std::uint8_t traffic_class, bool ect) {
    return traffic_class * 2u + (ect ? 1u : 0u);
  }

  // `dscp`: as TxPacket's. When there is no room for another, that of the class.
  std::size_t number(std::uint8_t traffic_class, std::uint8_t dscp, bool ect) {
    if (dscp == 0) return of_class(traffic_class, ect);
    const auto wanted = static_cast<std::uint8_t>(dscp | static_cast<std::uint8_t>(ect ? Ecn::kEct0 : Ecn::kNotEct));
    for (std::size_t i = 0; i < count_; ++i) {
      if (own_[i] == wanted) return kClasses + i;
    }
    if (count_ == own_.size()) return of_class(traffic_class, ect);
    own_[count_] = wanted;
    return kClasses + count_++;
  }
  std::uint8_t tos(std::size_t number) const {
    if (number >= kClasses) return own_[number - kClasses];
    return tos_of(static_cast<std::uint8_t>(number / 2), number % 2 != 0);
  }

 private:
  static constexpr std::size_t kClasses = 16;
  std::array<std::uint8_t, kMost - kClasses> own_{};
  std::size_t count_ = 0;
};
constexpr std::uint8_t class_of(std::uint8_t tos) { return tos >> 5; }

// What the user wants of all packets, whatever their class. -1: by their class.
struct FixedMarks {
  int traffic_class = -1;  // TOS byte; its ECN bits do not count
  int service_level = -1;  // 0 .. 15

  // `own`: by the packet's class and ECN.
  constexpr std::uint8_t tos(std::uint8_t own) const {
    return traffic_class < 0 ? own : static_cast<std::uint8_t>((traffic_class & 0xfc) | (own & 3));
  }
  // Switches that look at 802.1p instead of DSCP get the class by it.
  constexpr std::uint8_t level(std::uint8_t own) const {
    return service_level < 0 ? class_of(tos(own)) : static_cast<std::uint8_t>(service_level);
  }
};
constexpr Ecn ecn_of(std::uint8_t tos) { return static_cast<Ecn>(tos & 3); }

// Host order, as the two below.
std::uint32_t immediate_of(std::size_t header_bytes);
// Of a datagram with `length` bytes of header and payload; nothing: not one of ours.
std::optional<std::size_t> header_bytes_of(std::uint32_t immediate, std::size_t length);

struct NetworkHeader {
  Gid source{};
  std::uint8_t tos = 0;
};
// Nothing: another version of IP than `ipv4` says.
std::optional<NetworkHeader> parse_network_header(std::span<const std::byte, kNetworkHeader> bytes, bool ipv4);

// 20 bits, never 0, which would leave the choice of the UDP source port to the NIC: it may take the same for all.
std::uint32_t flow_label_of(std::uint32_t queue_pair, std::uint8_t path);

}  // namespace clustar::transport::io::verbs
