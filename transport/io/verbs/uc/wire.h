// What two UcIo say to each other in datagrams. Integers are big-endian; parse answers nullopt for what no sender of
// ours makes. The first byte of every datagram's header is its kind; behind kPacket the rest is the caller's own
// header.
//
//   0      1         2         4         8               12
//   | kind | version | number  | session | peer_session  | body          number, reserved: see the kind; otherwise 0
//
// A session is one life of a peer at its side, counted up by each UcIo: what names an older one of the receiver's is
// void, and a newer one of the sender's voids all that was agreed with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/io/packet_io.h"

namespace clustar::transport::io::verbs::uc {

inline constexpr std::uint8_t kWireVersion = 1;
inline constexpr std::uint32_t kMostSegments = 1u << 20;  // of one landing

enum class Kind : std::uint8_t {
  kPacket = 0,
  kSession = 1,  // nothing but the sessions: the receiver did not know ours
  kHello = 2,    // asks for a queue pair that takes writes of one pair
  kWelcome = 3,  // names it
  kGrants = 4,   // `number` places, each for one slot
  kRevoke = 5,   // a place is gone
  kHeaders = 6,  // `number` headers, in the payload
  kDown = 7,     // headers tell of writes on a pair, but none come
};

struct Preamble {
  static constexpr std::size_t kSize = 12;
  Kind kind = Kind::kSession;
  std::uint16_t number = 0;
  std::uint32_t session = 0;       // of the sender
  std::uint32_t peer_session = 0;  // the receiver's as the sender knows it; 0 = not yet

  void serialize_to(std::span<std::byte, kSize> out) const;
  static std::optional<Preamble> parse(std::span<const std::byte> header);
};

// A pair is a queue pair of ours with one of the peer's, for one path and traffic class.
constexpr std::uint8_t pair_key(std::uint8_t path, std::uint8_t traffic_class) {
  return static_cast<std::uint8_t>(traffic_class << 5 | path);
}
constexpr std::uint8_t pair_path(std::uint8_t key) { return key & 31; }
constexpr std::uint8_t pair_class(std::uint8_t key) { return key >> 5; }

//   0            4      8     9      10   12
//   | queue pair | psn  | key | mtu  | 0  | for |          mtu: ibv_mtu; for: Welcome's, of the hello's queue pair
struct PairEnd {
  static constexpr std::size_t kSize = 16;
  std::uint32_t queue_pair = 0;  // 24 bits
  std::uint32_t psn = 0;         // 24 bits, of its first packet
  std::uint8_t key = 0;
  std::uint8_t mtu = 0;
  // The queue pair that asked, or that writes in vain. 0: in a hello; in a Down any, as the pair is not known.
  std::uint32_t answers = 0;

  void serialize_to(std::span<std::byte, kSize> out) const;
  static std::optional<PairEnd> parse(std::span<const std::byte> body);
  bool operator==(const PairEnd&) const = default;
};

//   0      8    12     16        24       28              32
//   | slot | id | rkey | address | length | segment_bytes |
struct Grant {
  static constexpr std::size_t kSize = 32;
  std::uint64_t slot = 0;
  std::uint32_t id = 0;  // the landing's; never 0
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t segment_bytes = 0;

  std::uint32_t segments() const { return (length + segment_bytes - 1) / segment_bytes; }
  void serialize_to(std::span<std::byte, kSize> out) const;
  static std::optional<Grant> parse(std::span<const std::byte> body);
  bool operator==(const Grant&) const = default;
};

// The header of a packet whose payload was written, without its number: they count up from the batch's first, which is
// the first four bytes of the payload.
//   0       4         8      9       10       11         11 + size
//   | grant | segment | pair | flags | size   | header   |     flags 1: the packet was ECT
struct WrittenHeader {
  static constexpr std::size_t kFixed = 11;
  std::uint32_t grant = 0;
  std::uint32_t segment = 0;
  std::uint8_t pair = 0;
  bool ect = false;
  std::span<const std::byte> header{};

  std::size_t size() const { return kFixed + header.size(); }
  void serialize_to(std::span<std::byte> out) const;  // size() bytes
  // The first one of what is left of a batch.
  static std::optional<WrittenHeader> parse(std::span<const std::byte> rest);
};
inline constexpr std::size_t kBatchFixed = 4;

}  // namespace clustar::transport::io::verbs::uc
