#include "transport/tcp/core/wire.h"

#include <algorithm>
#include <cassert>

#include "transport/base/bytes.h"

namespace clustar::transport::tcp {
namespace {

constexpr std::uint64_t kHandleMagic = 0x434c555354415231;  // "CLUSTAR1"
constexpr std::uint32_t kHelloMagic = 0x434c5348;           // "CLSH"
constexpr std::uint32_t kWelcomeMagic = 0x434c5357;         // "CLSW"
constexpr std::uint16_t kChunkMagic = 0x434b;               // "CK"
constexpr std::uint16_t kClearMagic = 0x4354;               // "CT"
constexpr std::uint16_t kLocalNumber = 1;                   // of an identity's flags
constexpr unsigned kSenderBits = 16;                        // behind the number, in one word
constexpr std::size_t kConfigAt = 36;
constexpr std::size_t kEndpointsAt = kConfigAt + SharedConfig::kSize;
constexpr std::size_t kEndpointFixed = 4;  // in front of the address

constexpr std::size_t address_size(bool ipv6) { return ipv6 ? 16 : 4; }
std::size_t size_of(const Endpoint& endpoint) { return kEndpointFixed + address_size(endpoint.ipv6); }
std::size_t size_of(const std::vector<Endpoint>& endpoints) {
  std::size_t size = 0;
  for (const Endpoint& endpoint : endpoints) size += size_of(endpoint);
  return size;
}

// From the front of `bytes`.
std::optional<Endpoint> parse_endpoint(std::span<const std::byte> bytes) {
  if (bytes.size() < kEndpointFixed) return std::nullopt;
  const WireReader reader(bytes.first<kEndpointFixed>());
  const auto family = reader.load<std::uint8_t, 0>();
  Endpoint endpoint;
  endpoint.port = reader.load<std::uint16_t, 2>();
  if ((family != 4 && family != 6) || reader.load<std::uint8_t, 1>() != 0 || endpoint.port == 0) return std::nullopt;
  endpoint.ipv6 = family == 6;
  if (bytes.size() < size_of(endpoint)) return std::nullopt;
  std::ranges::copy(bytes.subspan(kEndpointFixed, address_size(endpoint.ipv6)), endpoint.address.begin());
  return endpoint;
}

void serialize_endpoint(const Endpoint& endpoint, std::span<std::byte> bytes) {
  WireWriter writer(bytes.first<kEndpointFixed>());
  writer.store<0>(static_cast<std::uint8_t>(endpoint.ipv6 ? 6 : 4));
  writer.store<2>(endpoint.port);
  std::ranges::copy(std::span(endpoint.address).first(address_size(endpoint.ipv6)), bytes.begin() + kEndpointFixed);
}

}  // namespace

std::optional<HandleInfo> HandleInfo::parse(const Handle& handle) {
  const WireReader reader{std::span<const std::byte, std::tuple_size_v<Handle>>(handle)};
  const auto count = reader.load<std::uint8_t, 10>();
  if (reader.load<std::uint64_t, 0>() != kHandleMagic || reader.load<std::uint16_t, 8>() != kWireVersion ||
      count == 0 || count > kMaxEndpoints) {
    return std::nullopt;
  }
  HandleInfo info;
  info.settings = {reader.load<std::uint32_t, 12>(), reader.load<std::uint32_t, 16>()};
  reader.copy_to<20>(std::span<std::byte, 16>(info.token));
  const auto config = SharedConfig::parse(std::span(handle).subspan<kConfigAt, SharedConfig::kSize>());
  if (!config) return std::nullopt;
  info.config = *config;
  std::span<const std::byte> rest = std::span(handle).subspan<kEndpointsAt>();
  for (std::size_t i = 0; i < count; ++i) {
    const auto endpoint = parse_endpoint(rest);
    if (!endpoint) return std::nullopt;
    info.endpoints.push_back(*endpoint);
    rest = rest.subspan(size_of(*endpoint));
  }
  return info;
}

bool HandleInfo::has_room(const Endpoint& next) const {
  return endpoints.size() < kMaxEndpoints &&
         kEndpointsAt + size_of(endpoints) + size_of(next) <= std::tuple_size_v<Handle>;
}

Handle HandleInfo::serialize() const {
  assert(!endpoints.empty() && endpoints.size() <= kMaxEndpoints);
  assert(kEndpointsAt + size_of(endpoints) <= std::tuple_size_v<Handle>);
  Handle handle;
  WireWriter writer{std::span<std::byte, std::tuple_size_v<Handle>>(handle)};
  writer.store<0>(kHandleMagic);
  writer.store<8>(kWireVersion);
  writer.store<10>(static_cast<std::uint8_t>(endpoints.size()));
  writer.store<12>(settings.eager_bytes);
  writer.store<16>(settings.window_bytes);
  writer.copy_from<20>(std::span<const std::byte, 16>(token));
  config.serialize_to(std::span(handle).subspan<kConfigAt, SharedConfig::kSize>());
  std::span<std::byte> rest = std::span(handle).subspan<kEndpointsAt>();
  for (const Endpoint& endpoint : endpoints) {
    serialize_endpoint(endpoint, rest);
    rest = rest.subspan(size_of(endpoint));
  }
  return handle;
}

std::optional<Hello> Hello::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  Hello hello;
  hello.role = reader.load<std::uint8_t, 6>();
  hello.data_sockets = reader.load<std::uint8_t, 7>();
  if (reader.load<std::uint32_t, 0>() != kHelloMagic || reader.load<std::uint16_t, 4>() != kWireVersion ||
      hello.data_sockets == 0 || hello.data_sockets > kMaxDataSockets || hello.role > hello.data_sockets) {
    return std::nullopt;
  }
  reader.copy_to<8>(std::span<std::byte, 16>(hello.token));
  hello.connection_id = reader.load<std::uint64_t, 24>();
  hello.settings = {reader.load<std::uint32_t, 32>(), reader.load<std::uint32_t, 36>()};
  return hello;
}

void Hello::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kHelloMagic);
  writer.store<4>(kWireVersion);
  writer.store<6>(role);
  writer.store<7>(data_sockets);
  writer.copy_from<8>(std::span<const std::byte, 16>(token));
  writer.store<24>(connection_id);
  writer.store<32>(settings.eager_bytes);
  writer.store<36>(settings.window_bytes);
}

bool Welcome::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  return reader.load<std::uint32_t, 0>() == kWelcomeMagic && reader.load<std::uint16_t, 4>() == kWireVersion;
}

void Welcome::serialize_to(std::span<std::byte, kSize> bytes) {
  WireWriter writer(bytes);
  writer.store<0>(kWelcomeMagic);
  writer.store<4>(kWireVersion);
}

std::optional<ChunkHeader> ChunkHeader::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto flags = reader.load<std::uint16_t, 2>();
  if (reader.load<std::uint16_t, 0>() != kChunkMagic || flags > (kHasSlot | kHasIdentity)) return std::nullopt;
  ChunkHeader header;
  header.has_slot = (flags & kHasSlot) != 0;
  header.identity.known = (flags & kHasIdentity) != 0;
  header.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 4>());
  header.seq = reader.load<std::uint32_t, 8>();
  header.slot = reader.load<std::uint32_t, 12>();
  header.total = reader.load<std::uint64_t, 16>();
  header.offset = reader.load<std::uint64_t, 24>();
  header.length = reader.load<std::uint32_t, 32>();
  // Written so that nothing overflows, whatever the peer sends.
  const bool in_range = header.total <= kMaxMessageBytes && header.length <= kMaxChunkBytes &&
                        header.offset <= header.total && header.length <= header.total - header.offset &&
                        (header.length > 0 || header.total == 0) &&
                        (header.has_slot || (header.offset == 0 && header.length == header.total)) &&
                        (header.offset == 0 || !header.identity.known);
  if (!in_range) return std::nullopt;
  return header;
}

void ChunkHeader::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kChunkMagic);
  writer.store<2>(static_cast<std::uint16_t>((has_slot ? kHasSlot : 0) | (identity.known ? kHasIdentity : 0)));
  writer.store<4>(static_cast<std::uint32_t>(tag));
  writer.store<8>(seq);
  writer.store<12>(slot);
  writer.store<16>(total);
  writer.store<24>(offset);
  writer.store<32>(length);
}

bool ChunkHeader::parse_identity(std::span<const std::byte, kIdentitySize> bytes) {
  const WireReader reader(bytes);
  const auto flags = reader.load<std::uint16_t, 34>();
  if (flags > kLocalNumber) return false;
  identity.known = true;
  identity.local_number = flags == kLocalNumber;
  identity.communicator = reader.load<std::uint64_t, 0>();
  const auto number = reader.load<std::uint64_t, 8>();
  identity.number = number >> kSenderBits;
  identity.sender = static_cast<std::uint16_t>(number);
  identity.total_bytes = reader.load<std::uint64_t, 16>();
  identity.transfer = reader.load<std::uint32_t, 24>();
  identity.channel = reader.load<std::uint16_t, 28>();
  identity.function = reader.load<std::uint8_t, 30>();
  identity.datatype = reader.load<std::uint8_t, 31>();
  identity.algorithm = reader.load<std::uint8_t, 32>();
  identity.protocol = reader.load<std::uint8_t, 33>();
  return true;
}

void ChunkHeader::serialize_identity_to(std::span<std::byte, kIdentitySize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(identity.communicator);
  writer.store<8>(identity.number << kSenderBits | identity.sender);
  writer.store<16>(identity.total_bytes);
  writer.store<24>(identity.transfer);
  writer.store<28>(identity.channel);
  writer.store<30>(identity.function);
  writer.store<31>(identity.datatype);
  writer.store<32>(identity.algorithm);
  writer.store<33>(identity.protocol);
  writer.store<34>(identity.local_number ? kLocalNumber : std::uint16_t{0});
}

std::string ChunkHeader::to_string() const {
  return "chunk{tag " + std::to_string(tag) + ", seq " + std::to_string(seq) +
         (has_slot ? ", slot " + std::to_string(slot) : ", eager") + ", bytes " + std::to_string(offset) + "+" +
         std::to_string(length) + " of " + std::to_string(total) + "}";
}

std::optional<ClearToSend> ClearToSend::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  ClearToSend clear;
  clear.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 4>());
  clear.seq = reader.load<std::uint32_t, 8>();
  clear.slot = reader.load<std::uint32_t, 12>();
  clear.length = reader.load<std::uint64_t, 16>();
  if (reader.load<std::uint16_t, 0>() != kClearMagic || clear.length > kMaxMessageBytes) return std::nullopt;
  return clear;
}

void ClearToSend::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kClearMagic);
  writer.store<4>(static_cast<std::uint32_t>(tag));
  writer.store<8>(seq);
  writer.store<12>(slot);
  writer.store<16>(length);
}

}  // namespace clustar::transport::tcp
