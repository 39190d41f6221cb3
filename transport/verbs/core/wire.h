// Everything the verbs transport puts on the wire: the handle and the greetings on the control connection, what both
// ends write into each other's memory, and the 32 bits of immediate data. Integers are big-endian; every parse checks
// magic, version and ranges and answers nullopt for anything else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/flow_tag.h"
#include "transport/api/identity_wire.h"
#include "transport/api/transport.h"
#include "transport/handshake/core/hello.h"
#include "transport/handshake/core/invitation.h"
#include "transport/message/receive_groups.h"

namespace clustar::transport::verbs {

inline constexpr std::uint16_t kWireVersion = 2;
inline constexpr std::size_t kMaxPorts = 4;
inline constexpr std::size_t kMaxQueuePairs = 8;
inline constexpr std::uint32_t kMaxRequests = ReceiveGroups::kMost;       // at the receiver
inline constexpr std::uint32_t kMaxSlots = kMaxRequests * kMaxRecvParts;  // posted receives
inline constexpr std::uint32_t kRing = 2 * kMaxSlots;                     // descriptors in the sender's memory
inline constexpr std::uint32_t kMaxStripes = 64;
inline constexpr std::uint32_t kEagerSlots = 64;
inline constexpr std::uint32_t kMaxEagerBytes = 1 << 20;
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 40;  // NCCL_MAX_NET_SIZE_BYTES

using handshake::Token;

// "CLUSTARV"
inline constexpr handshake::HandleFormat kHandleFormat{.magic = 0x434c555354415256, .version = kWireVersion};

// | gid (16) | lid (2) | mtu (1) | ethernet (1) |
struct PortContact {
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  // ibv_mtu: 1 .. 5
  bool ethernet = false;
};

// | number (4) | psn (4) | port (1) | 0 (3) |
struct QueuePairContact {
  std::uint32_t number = 0;
  std::uint32_t psn = 0;
  std::uint8_t port = 0;  // index into ports
};

// What one end must know of the other to connect queue pairs and to write into its memory.
struct Contact {
  static constexpr std::size_t kSize = 256;
  std::vector<PortContact> ports{};             // 1 .. 4
  std::vector<QueuePairContact> queue_pairs{};  // 1 .. 8
  std::uint64_t address = 0;                    // of the end's own memory (sender: Ring, receiver: Landing)
  std::array<std::uint32_t, kMaxPorts> keys{};  // its rkey on each port
  std::uint32_t eager_bytes = 0;  // of the receiver: the most that may go ahead of its receive; 0 = nothing

  // Queue pairs' port indexes are in range.
  static std::optional<Contact> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// First bytes on the control connection, from the connecting side (the sender of messages); the listener answers with a
// Welcome, and the connecting side, when its queue pairs are ready, with one byte kReady.
//  0       4     6   8               24     28
// | magic | ver | 0 | token (128 b) | rank | contact |
struct Hello {
  static constexpr std::size_t kContactAt = handshake::HelloFormat::kFrontSize + 4;
  static constexpr std::size_t kSize = kContactAt + Contact::kSize;
  // "CLVH"
  static constexpr handshake::HelloFormat kFormat{.magic = 0x434c5648, .version = kWireVersion, .size = kSize};
  Token token{};
  int rank = -1;  // of the connecting end; -1 = unknown
  Contact contact{};

  static std::optional<Hello> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// | magic (4) | version (2) | 0 (2) | contact |
struct Welcome {
  static constexpr std::size_t kSize = 8 + Contact::kSize;
  Contact contact{};

  static std::optional<Welcome> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

inline constexpr std::byte kReady{0x52};

// On the control connection, either way: what arrived on queue pairs that carry nothing any more.
//  0       2      3              4
// | magic | kind | queue pair | 8 x immediates that arrived (4) |
struct Farewell {
  static constexpr std::size_t kSize = 4 + 4 * kMaxQueuePairs;
  enum class Kind : std::uint8_t {
    kQueuePair = 1,  // `queue_pair` failed here: its count is final
    kChannel = 2,    // the channel is closed: what was taken, and nothing more will be
    kFailed = 3,     // the channel failed for good: the same
  };
  Kind kind = Kind::kChannel;
  std::uint8_t queue_pair = 0;
  std::array<std::uint32_t, kMaxQueuePairs> arrived{};

  static std::optional<Farewell> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// A posted receive, written by the receiver into the sender's ring at place `number` % kRing.
//  0       4     8     12     16        24       32         48             60
// | stamp | tag | seq | slot | address | length | keys (4) | eager freed | 0 | check |
// stamp: number + 1, so that memory of zeroes is none. check covers all before it: a NIC promises no order within what
// it writes, so a descriptor that is only half there is one that has not come.
struct Descriptor {
  static constexpr std::size_t kSize = 64;
  std::uint32_t number = 0;
  std::int32_t tag = 0;
  std::uint32_t seq = 0;   // of the receive among those of its tag
  std::uint32_t slot = 0;  // index, and generation << 16
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::array<std::uint32_t, kMaxPorts> keys{};
  std::uint32_t eager_freed = 0;  // how many eager messages the receiver has taken out of their places

  // Nothing if it is not descriptor `number` yet.
  static std::optional<Descriptor> parse(std::span<const std::byte, kSize> bytes, std::uint32_t number);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// Of a message, written by the sender into the receiver's memory: for a message that answers a descriptor into the
// slot's place, for an eager one in front of the payload.
//  0     4     8      12      14      16      24         28         64
// | tag | seq | slot | flags | count | total | consumed | identity |
// flags: 1 identity is known, 2 its number is local.
struct MessageHeader {
  static constexpr std::size_t kSize = 64;
  std::int32_t tag = 0;
  std::uint32_t seq = 0;
  std::uint32_t slot = 0;
  std::uint16_t stripes = 1;  // 1 .. kMaxStripes
  std::uint64_t total = 0;
  std::uint32_t consumed = 0;  // descriptors that the sender has read
  MessageIdentity identity{};

  static std::optional<MessageHeader> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// kStripe:   | kind (2) | 0 (7) | header (1) | stripe (6) | generation (8) | slot (8) |
// kEager:    | kind (2) | 0 (14) | place (16) |
// kConsumed: | kind (2) | 0 (6) | number (24) |
struct Immediate {
  enum class Kind : std::uint8_t { kStripe = 0, kEager = 1, kConsumed = 2 };
  Kind kind = Kind::kStripe;
  std::uint32_t slot = 0;    // kStripe: 24 bits of a slot id
  std::uint32_t stripe = 0;  // kStripe
  bool has_header = false;   // kStripe: of stripe 0, the slot's header came before it; otherwise the message is as
                             // long as its receive, and one stripe
  std::uint32_t number = 0;  // kEager: place; kConsumed: descriptors read, 24 bits

  static std::optional<Immediate> parse(std::uint32_t word);
  std::uint32_t serialize() const;
};

// As the wire has it; the same way back.
constexpr std::uint32_t network_order(std::uint32_t word) { return __builtin_bswap32(word); }
constexpr std::uint32_t slot_index(std::uint32_t slot) { return slot & 0xffff; }
constexpr std::uint32_t make_slot(std::uint32_t index, std::uint16_t generation) {
  return static_cast<std::uint32_t>(generation) << 16 | index;
}

// The sender's memory that the receiver writes: descriptors, then the count of eager messages taken.
struct RingLayout {
  static constexpr std::size_t kFreedAt = kRing * Descriptor::kSize;
  static constexpr std::size_t kSize = kFreedAt + 64;
  static constexpr std::size_t descriptor(std::uint32_t number) { return number % kRing * Descriptor::kSize; }
};
// The receiver's memory that the sender writes: a header per slot, then places for eager messages.
struct LandingLayout {
  std::uint32_t eager_bytes = 0;
  std::size_t place_bytes() const { return (MessageHeader::kSize + eager_bytes + 63) / 64 * 64; }
  std::size_t header(std::uint32_t slot) const { return slot * MessageHeader::kSize; }
  std::size_t place(std::uint32_t index) const { return kMaxSlots * MessageHeader::kSize + index * place_bytes(); }
  std::size_t size() const { return place(eager_bytes == 0 ? 0 : kEagerSlots); }
};

}  // namespace clustar::transport::verbs
