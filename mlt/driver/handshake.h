// What the two sides of a connection say before its first packet, over TCP. Integers are big-endian; every parse checks
// magic, version and ranges and answers nullopt for anything else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "mlt/core/options.h"
#include "transport/api/transport.h"
#include "transport/net/endpoint.h"

namespace clustar::mlt::driver {

inline constexpr std::uint16_t kHandshakeVersion = 1;
inline constexpr std::size_t kMaxPorts = 16;

using Token = std::array<std::byte, 16>;

// What both ends must have alike; a difference is an error at connect that names the setting.
struct SharedSettings {
  std::uint16_t segment = 0;
  std::uint8_t paths = 0;
  std::uint16_t max_messages = 0;
  std::uint16_t max_staged = 0;
  std::uint32_t unscheduled_bytes = 0;

  static SharedSettings of(const Options& options);
  bool operator==(const SharedSettings&) const = default;
};
// "<setting> is <here> here and <there> at the peer: <what to do>", of the first that differs.
std::optional<std::string> difference(const SharedSettings& here, const SharedSettings& there);

// Where each path of a device is reached; the host is the one that the TCP connection goes to, so that nobody can name
// a third one.
struct Ports {
  std::uint8_t count = 0;  // 1 .. kMaxPorts
  std::array<std::uint16_t, kMaxPorts> port{};

  std::span<const std::uint16_t> all() const { return std::span(port).first(count); }
  bool operator==(const Ports&) const = default;
};

//  0       8     10      12     14     16             20            24                40
// | magic | ver | segm. | paths | 0   | messages, staged | unscheduled | token (128 bit) | endpoint (20) |
// endpoint: | family 4 or 6 | 0 | port (2) | address (16) |
struct HandleInfo {
  Token token{};
  SharedSettings settings;
  transport::net::Endpoint endpoint;

  static std::optional<HandleInfo> parse(const transport::Handle& handle);
  transport::Handle serialize() const;
};

// First bytes from the connecting side.
//  0       4     6       8               24              32      34           36             40            44
// | magic | ver | count | token (128 b) | connection id | segm. | paths | 0 | messages, staged | unscheduled | 16 x
// port |
struct Hello {
  static constexpr std::size_t kSize = 76;
  Token token{};
  std::uint64_t connection_id = 0;  // random
  SharedSettings settings;
  Ports ports;

  static std::optional<Hello> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// The accepting side's answer.
//  0       4     6       8
// | magic | ver | count | 16 x port |
struct Welcome {
  static constexpr std::size_t kSize = 40;
  Ports ports;

  static std::optional<Welcome> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// On every packet of the connection: known to those who know the token, to nobody else.
std::uint64_t secret_of(const Token& token, std::uint64_t connection_id);

}  // namespace clustar::mlt::driver
