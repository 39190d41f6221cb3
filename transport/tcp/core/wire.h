// Everything the TCP transport puts on the wire. Integers are big-endian; every parse checks magic, version and ranges
// and answers nullopt for anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "transport/api/flow_tag.h"
#include "transport/api/identity_wire.h"
#include "transport/api/transport.h"
#include "transport/handshake/core/hello.h"
#include "transport/handshake/core/invitation.h"
#include "transport/message/receive_groups.h"

namespace clustar::transport::tcp {

inline constexpr std::uint16_t kWireVersion = 4;
inline constexpr std::uint8_t kMaxDataSockets = 16;
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 40;  // NCCL_MAX_NET_SIZE_BYTES
inline constexpr std::uint32_t kMaxSlots = ReceiveGroups::kMost * kMaxRecvParts;
inline constexpr std::uint32_t kMaxChunkBytes = 1u << 30;

using handshake::Token;

// Settings that both ends must share; a difference is an error at connect that names the setting.
struct SharedSettings {
  std::uint32_t eager_bytes = 0;
  std::uint32_t window_bytes = 0;

  bool operator==(const SharedSettings&) const = default;
};

//  0       8     10  11  12      16       20
// | magic | ver | n | 0 | eager | window | as all handles |
struct HandleInfo {
  // "CLUSTAR1"
  static constexpr handshake::HandleFormat kFormat{.magic = 0x434c555354415231, .version = kWireVersion, .own = 8};
  handshake::Invitation invitation;
  SharedSettings settings;

  static std::optional<HandleInfo> parse(const Handle& handle);
  Handle serialize() const;
};

// First bytes on every socket, from the connecting side.
//  0       4     6    7    8                 24              32      36       40     44
// | magic | ver | role| n | token (128 bit) | connection id | eager | window | rank |
// role 0: the control socket; 1 .. n: data socket role - 1.
struct Hello {
  static constexpr std::size_t kSize = 44;
  // "CLSH"
  static constexpr handshake::HelloFormat kFormat{.magic = 0x434c5348, .version = kWireVersion, .size = kSize};
  Token token{};
  std::uint64_t connection_id = 0;
  std::uint8_t role = 0;
  std::uint8_t data_sockets = 0;
  SharedSettings settings;  // what it sends by: eager_bytes at most the listener's
  int rank = -1;            // of the connecting end; -1 = unknown

  static std::optional<Hello> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// The accepting side's answer on the control socket, once all sockets of the connection are there.
// | magic | version (2) | 0 (2) |
struct Welcome {
  static constexpr std::size_t kSize = 8;
  static bool parse(std::span<const std::byte, kSize> bytes);
  static void serialize_to(std::span<std::byte, kSize> bytes);
};

// In front of every chunk on a data socket. `length` bytes of payload follow.
//  0      2       4     8     12     16      24       32       36     40
// | magic | flags | tag | seq | slot | total | offset | length |  0   | identity |
// flags 1: `slot` answers a clear-to-send; without it the chunk is a whole eager message; 2: the identity follows, of
// the chunk at offset 0 only.
// identity: | as identity_wire.h has it (34) | flags (2) | flags 1: the number is local.
struct ChunkHeader {
  static constexpr std::size_t kSize = 40;
  static constexpr std::size_t kIdentitySize = kIdentityWireSize + 2;
  static constexpr std::size_t kMaxSize = kSize + kIdentitySize;
  static constexpr std::uint16_t kHasSlot = 1;
  static constexpr std::uint16_t kHasIdentity = 2;
  bool has_slot = false;
  std::int32_t tag = 0;
  std::uint32_t seq = 0;
  std::uint32_t slot = 0;
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  MessageIdentity identity{};

  std::size_t size() const { return identity.known ? kMaxSize : kSize; }
  // When `identity.known` is set, parse_identity() of what follows has still to be called.
  static std::optional<ChunkHeader> parse(std::span<const std::byte, kSize> bytes);
  bool parse_identity(std::span<const std::byte, kIdentitySize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
  void serialize_identity_to(std::span<std::byte, kIdentitySize> bytes) const;
  std::string to_string() const;
};

// From receiver to sender on the control socket: a receive is posted.
//  0      2   4     8     12     16       24
// | magic | 0 | tag | seq | slot | length |
struct ClearToSend {
  static constexpr std::size_t kSize = 24;
  std::int32_t tag = 0;
  std::uint32_t seq = 0;
  std::uint32_t slot = 0;
  std::uint64_t length = 0;

  static std::optional<ClearToSend> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

}  // namespace clustar::transport::tcp
