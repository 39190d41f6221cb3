// What MLT puts on the wire. Integers are big-endian; parse answers nullopt for every packet that is not exactly one of
// these, with all fields in range and reserved ones 0. Every packet carries the connection's 64-bit secret, which
// an attacker who cannot read the handshake has to guess.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "mlt/core/ledger.h"
#include "mlt/core/packets.h"
#include "transport/base/time.h"

namespace clustar::mlt {

inline constexpr std::uint8_t kWireVersion = 8;
inline constexpr std::uint8_t kMaxPaths = 32;
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 30;
inline constexpr std::uint32_t kMaxPackets = 1u << 20;  // of one message
inline constexpr std::uint16_t kMinSegment = 64;
inline constexpr std::uint8_t kMaxLevel = 15;           // OpenRecord::level
inline constexpr std::uint32_t kMaxOutstanding = 4096;  // messages of one connection that are not forgotten
inline constexpr std::size_t kMaxHeader = 101;

inline constexpr Duration kTripUnit = std::chrono::microseconds(16);  // of DataHeader::trip

// Sent bytes and credit are counted in units of 64 bytes, modulo 2^32.
inline constexpr std::uint32_t kUnitBytes = 64;
constexpr std::uint32_t units(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + kUnitBytes - 1) / kUnitBytes);
}
// a - b of two counters that wrap, as a signed distance.
constexpr std::int32_t distance(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b); }

// The byte that names a lane.
constexpr std::uint8_t lane_of(std::uint8_t path, std::uint8_t traffic_class) {
  return static_cast<std::uint8_t>(traffic_class << 5 | path);
}
constexpr std::uint8_t path_of(std::uint8_t lane) { return lane & (kMaxPaths - 1); }
constexpr std::uint8_t class_of(std::uint8_t lane) { return lane >> 5; }

// A round trip as data packets tell it: in units of 16 us, about a second at most; 0: unknown.
constexpr std::uint16_t trip_of(Duration round_trip) {
  return static_cast<std::uint16_t>(std::clamp<std::int64_t>(round_trip / kTripUnit, 0, 0xffff));
}

enum class PacketType : std::uint8_t { kData = 1, kAck = 2, kPosted = 3, kState = 4, kProbe = 5 };

// Which collective a message belongs to, and which of its transfers it is: for the receiver to count and to schedule
// by, never to decide what may be lost. Numbers of functions, types, algorithms and protocols are the caller's.
struct Identity {
  static constexpr std::uint8_t kUnknown = 0xff;
  static constexpr std::uint8_t kMaxNibble = 14;  // of an algorithm or protocol that is known
  static constexpr std::uint16_t kNoRank = 0xffff;
  static constexpr std::uint64_t kNumbers = std::uint64_t{1} << 48;

  bool known = false;         // false: nothing else means anything, and zeroes travel
  bool local_number = false;  // `number` counts on the sending rank only
  std::uint64_t number = 0;   // of the function in the communicator; below kNumbers
  std::uint32_t transfer = 0;
  std::uint8_t channel = 0;
  std::uint8_t function = kUnknown;
  std::uint8_t datatype = kUnknown;
  std::uint8_t algorithm = kUnknown;  // above kMaxNibble it arrives as kUnknown; so does the protocol
  std::uint8_t protocol = kUnknown;
  std::uint16_t sender = kNoRank;  // of a send

  bool operator==(const Identity&) const = default;
};

// What a message is and what may be lost of it. Until a packet with it is acknowledged it rides on some of the data
// packets, on each that is sent again, and on every probe. A message whose record never arrived is reliable. Three
// bytes more, and 4 KiB would need a fourth packet on Ethernet (mlt/driver/driver_options).
//  0     4         8               12      14      15        16             24           28      30      32
// | tag | tag_seq | forgotten_below | stage | flags | channel | communicator | collective | ranks | edges | ...
//  32           40    44          48       54       56         60         61         62                     63
// | coll_bytes | ppm | important | number | sender | transfer | function | datatype | algorithm, protocol  |
// flags 1: loss is tolerated within the terms; 2: the identity is known; 4: its number is local; 8: the terms are of an
// exchange; the upper four bits: the level. The identity has the communicator and coll_bytes in common with the terms.
// algorithm, protocol: four bits each, 15 = not known.
struct OpenRecord {
  static constexpr std::size_t kSize = 63;
  static constexpr std::uint8_t kTolerant = 1;
  static constexpr std::uint8_t kIdentified = 2;
  static constexpr std::uint8_t kLocalNumber = 4;
  static constexpr std::uint8_t kExchange = 8;  // with kTolerant only
  std::int32_t tag = 0;
  std::uint32_t tag_seq = 0;          // of the messages with this tag
  std::uint32_t forgotten_below = 0;  // the sender has forgotten the messages below
  std::uint16_t stage = 0;            // k of the reduce-scatter step: a missing byte costs k + 1 contributions
  std::uint8_t level = 0;             // the receiver gives credit by: 0 first, 15 last
  bool tolerant = false;
  bool exchange = false;  // `collective` is of the space of exchanges (ledger.h)
  std::uint64_t communicator = 0;
  std::uint32_t collective = 0;
  std::uint16_t ranks = 0, edges = 0;
  std::uint64_t collective_bytes = 0;
  std::uint32_t tolerance_ppm = 0;  // parts per million, at most 1,000,000
  std::uint32_t important = 0;      // packets of the message that may not be missing
  Identity identity;

  bool operator==(const OpenRecord&) const = default;
};

inline CollectiveId collective_of(const OpenRecord& open) {
  return {open.communicator, open.collective, open.exchange};
}

//  0     1      2       3      4        12        16      20         24              28        30       32           36
// | ver | type | flags | lane | secret | message | index | path_seq | message_bytes | segment | passed | sent_units |
// trip | lane: class (3 bits), path (5). flags 1: retransmission, 2: important, 4: acknowledge at once, 8: an
// OpenRecord follows, 16: quiet, 32: parity, with none of 1, 2, 16, and of messages of two packets at least.
struct DataHeader {
  static constexpr std::size_t kSize = 38;
  std::uint64_t secret = 0;
  std::uint8_t path = 0, traffic_class = 0;
  bool retransmission = false, important = false;
  bool ack_now = false;
  bool quiet = false;  // of a retransmission: as Probe's, but for this packet
  bool parity = false;
  std::uint32_t message = 0;
  std::uint32_t index = 0;     // payload belongs at index * segment; of parity: block * kMaxParity + row
  std::uint32_t path_seq = 0;  // counts all data packets of the connection on this lane
  std::uint32_t message_bytes = 0;
  std::uint16_t segment = 0;  // payload bytes of every packet but the last
  // First transmissions of this message on this lane so far, this packet included, modulo 2^16: what of them is not
  // here was overtaken, and is lost. 0: the message is reliable, or this is sent again and says nothing.
  std::uint16_t passed = 0;
  std::uint32_t sent_units = 0;  // of the connection, this packet included
  std::uint16_t trip = 0;        // trip_of(the connection's round trip without queues), as its sender measures it
  std::optional<OpenRecord> open;

  bool operator==(const DataHeader&) const = default;
};

// Selective acknowledgement of up to three lanes. A lane is a path and a traffic class: within it packets stay in
// order, while switches let one class pass another.
//  0                           12             16               20      24
// | ver | type | 0 | 0 | secret | credit_units | finished_below | n | 0 | n x block |
// block: | lane (1) | 0 (1) | marked (2) | largest (4) | before (8) | delay_us (2) | waited_us (2) |
struct AckBlock {
  static constexpr std::size_t kSize = 20;
  static constexpr std::int32_t kBefore = 64;  // packets before the largest that it tells of
  std::uint8_t path = 0, traffic_class = 0;
  std::uint16_t marked = 0;     // packets of the lane that arrived with CE so far, modulo 2^16
  std::uint32_t largest = 0;    // path_seq
  std::uint64_t before = 0;     // bit i: largest - 1 - i arrived
  std::uint16_t delay_us = 0;   // how long `largest` waited for this acknowledgement
  std::uint16_t waited_us = 0;  // and before that in its host, until the receiver read it; 0: unknown

  bool operator==(const AckBlock&) const = default;
};
struct Ack {
  static constexpr std::size_t kMaxBlocks = 3;
  std::uint64_t secret = 0;
  std::uint32_t credit_units = 0;
  std::uint32_t finished_below = 0;  // every message below is complete in its receive, or longer than it
  std::uint8_t count = 0;
  std::array<AckBlock, kMaxBlocks> blocks{};

  bool operator==(const Ack&) const = default;
};

// A receive was posted.
//  0                           12    16        20       24
// | ver | type | 0 | 0 | secret | tag | tag_seq | length | credit_units |
struct Posted {
  static constexpr std::size_t kSize = 28;
  std::uint64_t secret = 0;
  std::int32_t tag = 0;
  std::uint32_t tag_seq = 0;
  std::uint32_t length = 0;
  std::uint32_t credit_units = 0;

  bool operator==(const Posted&) const = default;
};

// What of a message is missing: a window of 512 packets; the other windows follow in packets of their own.
//  0                               12        16             20     24      26     28               32
// | ver | type | flags | 0 | secret | message | credit_units | base | count | want | finished_below | bitmap |
// flags 1: STOP, the message is over; 2: nothing is missing; 4: it has its receive; 8: the receiver asks, silence made
// it doubt. bitmap: bit i of byte i / 8, from the highest: base + i is missing; as many bytes as `count` bits need.
struct State {
  static constexpr std::size_t kFixed = 32;
  static constexpr std::uint16_t kWindow = 512;
  std::uint64_t secret = 0;
  bool stop = false;
  bool complete = false;
  bool matched = false;
  bool asks = false;  // only of a message that is not over
  std::uint32_t message = 0;
  std::uint32_t credit_units = 0;
  std::uint32_t base = 0;
  std::uint16_t count = 0;  // bits that are valid
  std::uint16_t want = 0;   // how many of the missing, besides the important ones, must be sent again
  std::uint32_t finished_below = 0;
  std::array<std::byte, kWindow / 8> missing{};  // 0 from `count` on

  std::size_t bitmap_bytes() const { return (std::size_t{count} + 7) / 8; }
  bool is_missing(std::uint32_t i) const { return (missing[i / 8] & std::byte{0x80} >> (i % 8)) != std::byte{0}; }
  bool operator==(const State&) const = default;
};

// The sender asks for the state of a message; also its request for credit.
//  0                               12        16     20              24        26       28           32
// | ver | type | flags | 0 | secret | message | sent | message_bytes | segment | window | sent_units | OpenRecord |
// flags 1: all was sent and nothing of it is on its way: what is missing will not come by itself.
struct Probe {
  static constexpr std::size_t kSize = 32 + OpenRecord::kSize;
  std::uint64_t secret = 0;
  bool quiet = false;
  std::uint32_t message = 0;
  std::uint32_t sent = 0;  // packets sent at least once, in sending order
  std::uint32_t message_bytes = 0;
  std::uint16_t segment = 0;
  std::uint16_t window = 0;  // of State::kWindow packets: the sender is in doubt there, and the answer begins with it
  std::uint32_t sent_units = 0;
  OpenRecord open;

  bool operator==(const Probe&) const = default;
};

using Packet = std::variant<DataHeader, Ack, Posted, State, Probe>;

// `bytes` is the packet's header; payload is not looked at.
std::optional<Packet> parse(std::span<const std::byte> bytes);
// The same into `packet`, which holds anything after false; the cheapest when it held a packet of this type.
bool parse(std::span<const std::byte> bytes, Packet& packet);
// The secret of a packet of any type, before anything else is believed.
std::optional<std::uint64_t> peek_secret(std::span<const std::byte> bytes);
// Writes to the front of `out` (at least kMaxHeader bytes) and returns the length.
std::size_t serialize(const Packet& packet, std::span<std::byte> out);

// Bytes of payload that the header announces.
constexpr std::uint32_t payload_bytes(const DataHeader& header) {
  return header.parity ? header.segment : packet_bytes(header.index, header.message_bytes, header.segment);
}
// The packet that a tolerant message begins with: a function of the message, so that what comes last, and is lost
// first, is not always the same part of the model. Both ends compute it. A reliable message begins with 0.
std::uint32_t first_index(std::uint64_t secret, std::uint32_t message, std::uint32_t packets);

}  // namespace clustar::mlt
