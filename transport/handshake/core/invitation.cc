#include "transport/handshake/core/invitation.h"

#include <algorithm>
#include <cassert>

#include "transport/base/bytes.h"

namespace clustar::transport::handshake {
namespace {

constexpr std::size_t kEndpointFixed = 4;  // in front of the address

std::size_t address_size(bool ipv6) { return ipv6 ? 16 : 4; }

std::size_t wire_size(const std::vector<net::Endpoint>& endpoints) {
  std::size_t size = 0;
  for (const net::Endpoint& endpoint : endpoints) size += handshake::wire_size(endpoint);
  return size;
}

}  // namespace

std::size_t wire_size(const net::Endpoint& endpoint) { return kEndpointFixed + address_size(endpoint.ipv6); }

std::optional<net::Endpoint> parse_endpoint(std::span<const std::byte> bytes) {
  if (bytes.size() < kEndpointFixed) return std::nullopt;
  const WireReader reader(bytes.first<kEndpointFixed>());
  const auto family = reader.load<std::uint8_t, 0>();
  net::Endpoint endpoint;
  endpoint.port = reader.load<std::uint16_t, 2>();
  if ((family != 4 && family != 6) || reader.load<std::uint8_t, 1>() != 0 || endpoint.port == 0) return std::nullopt;
  endpoint.ipv6 = family == 6;
  if (bytes.size() < wire_size(endpoint)) return std::nullopt;
  std::ranges::copy(bytes.subspan(kEndpointFixed, address_size(endpoint.ipv6)), endpoint.address.begin());
  return endpoint;
}

void serialize_endpoint(const net::Endpoint& endpoint, std::span<std::byte> bytes) {
  WireWriter writer(bytes.first<kEndpointFixed>());
  writer.store<0>(static_cast<std::uint8_t>(endpoint.ipv6 ? 6 : 4));
  writer.store<2>(endpoint.port);
  std::ranges::copy(std::span(endpoint.address).first(address_size(endpoint.ipv6)), bytes.begin() + kEndpointFixed);
}

bool Invitation::has_room(const net::Endpoint& next, std::size_t room) const {
  return endpoints.size() < kMaxEndpoints && wire_size(endpoints) + wire_size(next) <= room;
}

std::optional<Invitation> Invitation::parse(const HandleFormat& format, const Handle& handle) {
  const WireReader reader{std::span<const std::byte, std::tuple_size_v<Handle>>(handle)};
  const auto count = reader.load<std::uint8_t, 10>();
  if (reader.load<std::uint64_t, 0>() != format.magic || reader.load<std::uint16_t, 8>() != format.version ||
      count == 0 || count > kMaxEndpoints || reader.load<std::uint8_t, 11>() > 1) {
    return std::nullopt;
  }
  const std::span<const std::byte> bytes(handle);
  Invitation made;
  std::ranges::copy(bytes.subspan(HandleFormat::kOwnAt + format.own, made.token.size()), made.token.begin());
  const auto config = SharedConfig::parse(bytes.subspan(format.config_at()).first<SharedConfig::kSize>());
  if (!config) return std::nullopt;
  made.config = *config;
  made.reads_identity = reader.load<std::uint8_t, 11>() == 1;
  std::span<const std::byte> rest = bytes.subspan(format.endpoints_at());
  for (std::size_t i = 0; i < count; ++i) {
    const auto endpoint = parse_endpoint(rest);
    if (!endpoint) return std::nullopt;
    made.endpoints.push_back(*endpoint);
    rest = rest.subspan(wire_size(*endpoint));
  }
  return made;
}

Handle Invitation::serialize(const HandleFormat& format) const {
  assert(!endpoints.empty() && endpoints.size() <= kMaxEndpoints && wire_size(endpoints) <= format.room());
  Handle handle;
  WireWriter writer{std::span<std::byte, std::tuple_size_v<Handle>>(handle)};
  writer.store<0>(format.magic);
  writer.store<8>(format.version);
  writer.store<10>(static_cast<std::uint8_t>(endpoints.size()));
  writer.store<11>(static_cast<std::uint8_t>(reads_identity ? 1 : 0));
  const std::span<std::byte> bytes(handle);
  std::ranges::copy(token, bytes.begin() + static_cast<std::ptrdiff_t>(HandleFormat::kOwnAt + format.own));
  config.serialize_to(bytes.subspan(format.config_at()).first<SharedConfig::kSize>());
  std::span<std::byte> rest = bytes.subspan(format.endpoints_at());
  for (const net::Endpoint& endpoint : endpoints) {
    serialize_endpoint(endpoint, rest);
    rest = rest.subspan(wire_size(endpoint));
  }
  return handle;
}

}  // namespace clustar::transport::handshake
