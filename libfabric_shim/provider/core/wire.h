// What endpoints of the provider say to each other: big-endian, versioned. What does not parse ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/net/endpoint.h"

namespace clustar::libfabric_shim::provider {

inline constexpr std::uint32_t kMagic = 0x434c4649;  // CLFI
inline constexpr std::uint8_t kWireVersion = 2;
// Payloads by rendezvous that a sender may have offered on one connection; each is a tag of waist 1.
inline constexpr std::uint16_t kSlots = 64;
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;
// A message of up to so many bytes that was injected goes behind its header, however long such may be otherwise.
inline constexpr std::size_t kInjectBytes = 4096;
inline constexpr std::size_t kHandleBytes = 120;  // transport::Handle

// Who dials asks for the handle of the transport's listener.
struct Question {
  static constexpr std::size_t kSize = 8;
  static void serialize_to(std::span<std::byte, kSize> out);
  static bool parse(std::span<const std::byte, kSize> in);
};

struct Answer {
  static constexpr std::size_t kSize = 16 + kHandleBytes;
  std::uint32_t eager_bytes = 0;  // the longest payload that a buffer of the receiver takes with its header
  std::array<std::byte, kHandleBytes> handle{};

  void serialize_to(std::span<std::byte, kSize> out) const;
  static std::optional<Answer> parse(std::span<const std::byte, kSize> in);
};

// Begins every message on tag 0 of a connection. kHello is the first and no other one is: the endpoint that sends.
enum class Kind : std::uint8_t { kHello = 1, kEager = 2, kRendezvous = 3 };

struct Header {
  static constexpr std::size_t kSize = 40;
  Kind kind = Kind::kEager;
  bool tagged = false;     // for fi_trecv; otherwise for fi_recv, and `tag` is 0
  bool has_data = false;   // `data` is FI_REMOTE_CQ_DATA
  std::uint16_t slot = 0;  // of a rendezvous: the payload comes on tag 1 + slot
  std::uint64_t tag = 0;
  std::uint64_t length = 0;  // payload bytes: behind the header of kEager and kHello
  std::uint64_t data = 0;

  void serialize_to(std::span<std::byte, kSize> out) const;
  // Of a whole message. Nothing: no header of this version, or `length` contradicts the message's.
  static std::optional<Header> parse(std::span<const std::byte> message);
  bool operator==(const Header&) const = default;
};

// Payload of kHello: the socket address by which the endpoint is known.
struct Hello {
  static constexpr std::size_t kSize = 24;
  transport::net::Endpoint endpoint{};

  void serialize_to(std::span<std::byte, kSize> out) const;
  static std::optional<Hello> parse(std::span<const std::byte> payload);
};

}  // namespace clustar::libfabric_shim::provider
