#include "transport/tcp/core/wire.h"

#include <utility>

#include "transport/base/bytes.h"

namespace clustar::transport::tcp {
namespace {

constexpr std::uint32_t kWelcomeMagic = 0x434c5357;  // "CLSW"
constexpr std::uint16_t kChunkMagic = 0x434b;        // "CK"
constexpr std::uint16_t kClearMagic = 0x4354;        // "CT"
constexpr std::uint16_t kLocalNumber = 1;            // of an identity's flags

}  // namespace

std::optional<HandleInfo> HandleInfo::parse(const Handle& handle) {
  auto invitation = handshake::Invitation::parse(kFormat, handle);
  if (!invitation) return std::nullopt;
  const WireReader own{std::span(handle).subspan<handshake::HandleFormat::kOwnAt, kFormat.own>()};
  return HandleInfo{std::move(*invitation), {own.load<std::uint32_t, 0>(), own.load<std::uint32_t, 4>()}};
}

Handle HandleInfo::serialize() const {
  Handle handle = invitation.serialize(kFormat);
  WireWriter own{std::span(handle).subspan<handshake::HandleFormat::kOwnAt, kFormat.own>()};
  own.store<0>(settings.eager_bytes);
  own.store<4>(settings.window_bytes);
  return handle;
}

std::optional<Hello> Hello::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  Hello hello;
  hello.role = reader.load<std::uint8_t, 6>();
  hello.data_sockets = reader.load<std::uint8_t, 7>();
  if (reader.load<std::uint32_t, 0>() != kFormat.magic || reader.load<std::uint16_t, 4>() != kWireVersion ||
      hello.data_sockets == 0 || hello.data_sockets > kMaxDataSockets || hello.role > hello.data_sockets) {
    return std::nullopt;
  }
  reader.copy_to<8>(std::span<std::byte, 16>(hello.token));
  hello.connection_id = reader.load<std::uint64_t, 24>();
  hello.settings = {reader.load<std::uint32_t, 32>(), reader.load<std::uint32_t, 36>()};
  hello.rank = handshake::rank_of(reader.load<std::uint32_t, 40>());
  return hello;
}

void Hello::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kFormat.magic);
  writer.store<4>(kWireVersion);
  writer.store<6>(role);
  writer.store<7>(data_sockets);
  writer.copy_from<8>(std::span<const std::byte, 16>(token));
  writer.store<24>(connection_id);
  writer.store<32>(settings.eager_bytes);
  writer.store<36>(settings.window_bytes);
  writer.store<40>(handshake::wire_rank(rank));
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
  transport::parse_identity(bytes.first<kIdentityWireSize>(), identity);
  return true;
}

void ChunkHeader::serialize_identity_to(std::span<std::byte, kIdentitySize> bytes) const {
  WireWriter writer(bytes);
  transport::serialize_identity(identity, bytes.first<kIdentityWireSize>());
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
