// Everything the transport over libfabric puts on the wire, beside what it shares with transport/tcp: handle and
// greetings on the control connection, notes behind them, and the frames that travel by the fabric. Integers are
// big-endian; every parse checks magic, version and ranges and answers nullopt for anything else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/handshake/core/hello.h"
#include "transport/handshake/core/invitation.h"
#include "transport/tcp/core/wire.h"

namespace clustar::transport::ofi {

using handshake::Token;
using tcp::ChunkHeader;
using tcp::ClearToSend;
using tcp::SharedSettings;

inline constexpr std::uint16_t kWireVersion = 3;
inline constexpr std::uint32_t kFrames = 32;  // of a channel, that may be under way and not taken by the receiver

// "CLUSTARO"
inline constexpr handshake::HandleFormat kHandleFormat{.magic = 0x434c55535441524f, .version = kWireVersion};

// An end's libfabric addresses: one, or of a fused device one for each of its rails.
//  0       2   4          44
// | rails | 0 | provider | kMostRails times: | length (2) | 0 (2) | address (256) | |
struct Contact {
  static constexpr std::size_t kProvider = 40;  // bytes of its name, the last is 0
  static constexpr std::size_t kAddress = 256;
  static constexpr std::size_t kMostRails = kMaxFused;
  static constexpr std::size_t kRail = 4 + kAddress;
  static constexpr std::size_t kSize = 4 + kProvider + kMostRails * kRail;
  std::string provider{};
  std::vector<std::vector<std::byte>> addresses{};  // 1 .. kMostRails, of 1 .. kAddress bytes each

  static std::optional<Contact> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// First bytes on the control connection, from the connecting side.
//  0       4     6   8               24     28
// | magic | ver | 0 | token (128 b) | rank | contact |
struct Hello {
  static constexpr std::size_t kContactAt = handshake::HelloFormat::kFrontSize + 4;
  static constexpr std::size_t kSize = kContactAt + Contact::kSize;
  // "CLOH"
  static constexpr handshake::HelloFormat kFormat{.magic = 0x434c4f48, .version = kWireVersion, .size = kSize};
  Token token{};
  int rank = -1;  // of the connecting end; -1 = unknown
  Contact contact{};

  static std::optional<Hello> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// Who a frame is for. Anybody may send to an endpoint: the key is known to who was let in.
struct ChannelName {
  static constexpr std::uint32_t kMost = (1u << 24) - 1;
  std::uint32_t number = 0;  // 1 .. kMost, never given out again by its endpoint
  std::uint64_t key = 0;
};

// The listener's answer.
//  0       4     6   8       12       16                                          112
// | magic | ver | 0 | eager | window | kMostRails times: | channel (4) | key (8) | | contact |
struct Welcome {
  static constexpr std::size_t kChannelsAt = 16;
  static constexpr std::size_t kChannel = 12;
  static constexpr std::size_t kContactAt = kChannelsAt + Contact::kMostRails * kChannel;
  static constexpr std::size_t kSize = kContactAt + Contact::kSize;
  std::vector<ChannelName> channels{};  // of each rail that the connection has: as many as addresses
  SharedSettings settings{};            // of the receiver: what may go ahead of its receives
  Contact contact{};

  static std::optional<Welcome> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// On the control connection, as long as a clear-to-send.
//  0       2      4   8       16
// | magic | kind | 0 | count | 0 |
struct Note {
  static constexpr std::size_t kSize = ClearToSend::kSize;
  enum class Kind : std::uint16_t {
    kTaken = 1,     // receiver to sender: frames of the channel that it has taken, since the beginning
    kFarewell = 2,  // either way: the channel closes, and its process lives; of the sender: it sent so many frames
  };
  Kind kind = Kind::kTaken;
  std::uint64_t count = 0;

  static std::optional<Note> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// In the slot of a clear-to-send, whose numbers leave it free: a receive as long as the clear-to-send says is posted
// under direct_tag(). A whole message may come under that tag, with nothing before it; at most one does.
inline constexpr std::uint32_t kSlotPosted = 0x8000;
static_assert(tcp::kMaxSlots <= 256);

// What travels by the fabric under kFrameTag, on the first rail but for each other's hello. A chunk's payload follows
// within the frame, or as a message of its own under payload_tag(), which the receiver asks for when it has the frame:
// so it goes straight to where it belongs, and is never longer than what it is asked for with.
//  0       2      3   4         8        12    20
// | magic | kind | 0 | channel | number | key | by kind |
// What is behind it of a kInline or kAnnounced frame: | chunk header | payload |
// of a kWhole or kAhead frame, so that small messages fit what providers copy at once: | tag | seq | payload |
struct FrameHead {
  static constexpr std::size_t kSize = 20;
  enum class Kind : std::uint8_t {
    kHello = 1,      // the first: it opens the way, and shows that there is one
    kInline = 2,     // the payload follows
    kAnnounced = 3,  // it is the message of `number`
    kWhole = 4,      // all of a message follows, for the receive whose slot is `number`
    kAhead = 5,      // all of a message follows, whose receive the sender does not know
  };
  Kind kind = Kind::kHello;
  ChannelName channel{};
  std::uint32_t number = 0;

  static std::optional<FrameHead> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// All of a frame that brings or announces a chunk.
struct ChunkFrame {
  static constexpr std::size_t kMost = FrameHead::kSize + ChunkHeader::kMaxSize;  // before the payload
  static constexpr std::size_t kWholeSize = FrameHead::kSize + 8;  // before a whole message without identity
  ChunkHeader header{};
  std::span<const std::byte> payload{};  // within what was parsed; empty: announced

  // `bytes`: those behind `head`. nullopt: they are not what its kind says.
  static std::optional<ChunkFrame> parse(const FrameHead& head, std::span<const std::byte> bytes);
};
// What goes before the payload, in the shortest form. `number`: the payload is the message of that number; nullopt: it
// follows.
std::size_t serialize_front(const ChannelName& channel, const ChunkHeader& header, std::optional<std::uint32_t> number,
                            std::span<std::byte, ChunkFrame::kMost> bytes);

// On which of a connection's rails a payload or a whole message travels: the rail of its number, or of its message's
// number within its tag.
constexpr std::size_t rail_of(std::uint32_t number, std::size_t rails) { return number % rails; }

// 48 bits, which all providers have.
inline constexpr std::uint64_t kFrameTag = 0;
inline constexpr std::uint64_t kTagBits = (std::uint64_t{1} << 48) - 1;
constexpr std::uint64_t payload_tag(std::uint32_t channel, std::uint32_t number) {
  return std::uint64_t{1} << 47 | static_cast<std::uint64_t>(channel & ChannelName::kMost) << 23 | (number & 0x3fffff);
}
// `slot`: a number of 8 bits, and above 16 its generation.
constexpr std::uint64_t direct_tag(std::uint32_t channel, std::uint32_t slot) {
  return payload_tag(channel, (slot >> 16) << 8 | (slot & 0xff)) | std::uint64_t{1} << 22;
}

}  // namespace clustar::transport::ofi
