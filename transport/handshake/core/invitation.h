// What a handle says of the listener: where it is, the token to show, and what must be configured alike. Integers are
// big-endian; a parse checks magic, version and ranges and answers nullopt for anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "transport/api/shared_config.h"
#include "transport/api/transport.h"
#include "transport/handshake/core/hello.h"
#include "transport/net/endpoint.h"

namespace clustar::transport::handshake {

// | family 4 or 6 | 0 | port (2) | address (4 or 16) |
inline constexpr std::size_t kMaxEndpointSize = 20;
std::size_t wire_size(const net::Endpoint& endpoint);
// At the front of `bytes`.
std::optional<net::Endpoint> parse_endpoint(std::span<const std::byte> bytes);
void serialize_endpoint(const net::Endpoint& endpoint, std::span<std::byte> bytes);

//  0       8     10  11      12                    12 + own
// | magic | ver | n | flags | the transport's own | token (128 b) | digest (8 x 4), rank | n x endpoint |
// flags 1: the listener reads what each message is.
struct HandleFormat {
  static constexpr std::size_t kOwnAt = 12;
  std::uint64_t magic = 0;
  std::uint16_t version = 0;
  std::size_t own = 0;  // bytes

  constexpr std::size_t config_at() const { return kOwnAt + own + std::tuple_size_v<Token>; }
  constexpr std::size_t endpoints_at() const { return config_at() + SharedConfig::kSize; }
  // For endpoints.
  constexpr std::size_t room() const { return std::tuple_size_v<Handle> - endpoints_at(); }
};

struct Invitation {
  static constexpr std::size_t kMaxEndpoints = 4;
  Token token{};
  SharedConfig config{};
  bool reads_identity = false;             // ChannelOptions::reads_identity
  std::vector<net::Endpoint> endpoints{};  // 1 .. kMaxEndpoints, in order of preference

  // Whether `next` fits behind the endpoints that are there, into `room` bytes for all.
  bool has_room(const net::Endpoint& next, std::size_t room) const;
  static std::optional<Invitation> parse(const HandleFormat& format, const Handle& handle);
  // The transport's own bytes are 0.
  Handle serialize(const HandleFormat& format) const;
};

}  // namespace clustar::transport::handshake
