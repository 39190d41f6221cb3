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
constexpr std::size_t kEndpointSize = 20;
constexpr std::size_t kEndpointsAt = 36;
static_assert(kEndpointsAt + HandleInfo::kMaxEndpoints * kEndpointSize <= std::tuple_size_v<Handle>);

std::optional<Endpoint> parse_endpoint(std::span<const std::byte, kEndpointSize> bytes) {
  const WireReader reader(bytes);
  const auto family = reader.load<std::uint8_t, 0>();
  Endpoint endpoint;
  endpoint.port = reader.load<std::uint16_t, 2>();
  if ((family != 4 && family != 6) || endpoint.port == 0) return std::nullopt;
  endpoint.ipv6 = family == 6;
  reader.copy_to<4>(std::span<std::byte, 16>(endpoint.address));
  return endpoint;
}

void serialize_endpoint(const Endpoint& endpoint, std::span<std::byte, kEndpointSize> bytes) {
  WireWriter writer(bytes);
  writer.store<0>(static_cast<std::uint8_t>(endpoint.ipv6 ? 6 : 4));
  writer.store<2>(endpoint.port);
  writer.copy_from<4>(std::span<const std::byte, 16>(endpoint.address));
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
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = std::span(handle).subspan(kEndpointsAt + i * kEndpointSize).first<kEndpointSize>();
    const auto endpoint = parse_endpoint(at);
    if (!endpoint) return std::nullopt;
    info.endpoints.push_back(*endpoint);
  }
  return info;
}

Handle HandleInfo::serialize() const {
  assert(!endpoints.empty() && endpoints.size() <= kMaxEndpoints);
  Handle handle;
  WireWriter writer{std::span<std::byte, std::tuple_size_v<Handle>>(handle)};
  writer.store<0>(kHandleMagic);
  writer.store<8>(kWireVersion);
  writer.store<10>(static_cast<std::uint8_t>(endpoints.size()));
  writer.store<12>(settings.eager_bytes);
  writer.store<16>(settings.window_bytes);
  writer.copy_from<20>(std::span<const std::byte, 16>(token));
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    serialize_endpoint(endpoints[i],
                       std::span(handle).subspan(kEndpointsAt + i * kEndpointSize).first<kEndpointSize>());
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
  if (reader.load<std::uint16_t, 0>() != kChunkMagic || (flags & ~kHasSlot) != 0) return std::nullopt;
  ChunkHeader header;
  header.has_slot = (flags & kHasSlot) != 0;
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
                        (header.has_slot || (header.offset == 0 && header.length == header.total));
  if (!in_range) return std::nullopt;
  return header;
}

void ChunkHeader::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kChunkMagic);
  writer.store<2>(static_cast<std::uint16_t>(has_slot ? kHasSlot : 0));
  writer.store<4>(static_cast<std::uint32_t>(tag));
  writer.store<8>(seq);
  writer.store<12>(slot);
  writer.store<16>(total);
  writer.store<24>(offset);
  writer.store<32>(length);
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
