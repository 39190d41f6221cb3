#include "libfabric_shim/rdm/wire.h"

#include <algorithm>
#include <cstring>

#include "transport/base/bytes.h"

namespace clustar::transport::ofi {
namespace {

constexpr std::uint32_t kWelcomeMagic = 0x434c4f57;  // "CLOW"
constexpr std::uint16_t kNoteMagic = 0x434e;         // "CN"
constexpr std::uint16_t kFrameMagic = 0x4346;        // "CF"

}  // namespace

std::optional<Contact> Contact::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto length = reader.load<std::uint16_t, 0>();
  std::array<std::byte, kProvider> provider;
  reader.copy_to<4>(std::span(provider));
  if (length == 0 || length > kAddress || provider.back() != std::byte{0}) return std::nullopt;
  Contact contact;
  contact.provider = reinterpret_cast<const char*>(provider.data());
  const auto address = bytes.subspan<4 + kProvider, kAddress>().first(length);
  contact.address.assign(address.begin(), address.end());
  return contact;
}

void Contact::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(static_cast<std::uint16_t>(address.size()));
  std::memcpy(bytes.data() + 4, provider.data(), std::min(provider.size(), kProvider - 1));
  if (!address.empty()) std::memcpy(bytes.data() + 4 + kProvider, address.data(), std::min(address.size(), kAddress));
}

std::optional<Hello> Hello::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  if (reader.load<std::uint32_t, 0>() != kFormat.magic || reader.load<std::uint16_t, 4>() != kWireVersion) {
    return std::nullopt;
  }
  auto contact = Contact::parse(bytes.subspan<kContactAt, Contact::kSize>());
  if (!contact) return std::nullopt;
  Hello hello;
  reader.copy_to<8>(std::span<std::byte, 16>(hello.token));
  hello.rank = handshake::rank_of(reader.load<std::uint32_t, 24>());
  hello.contact = std::move(*contact);
  return hello;
}

void Hello::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kFormat.magic);
  writer.store<4>(kWireVersion);
  writer.copy_from<8>(std::span<const std::byte, 16>(token));
  writer.store<24>(handshake::wire_rank(rank));
  contact.serialize_to(bytes.subspan<kContactAt, Contact::kSize>());
}

std::optional<Welcome> Welcome::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  Welcome welcome;
  welcome.channel = {reader.load<std::uint32_t, 8>(), reader.load<std::uint64_t, 12>()};
  welcome.settings = {reader.load<std::uint32_t, 20>(), reader.load<std::uint32_t, 24>()};
  auto contact = Contact::parse(bytes.subspan<kContactAt, Contact::kSize>());
  const bool sound = reader.load<std::uint32_t, 0>() == kWelcomeMagic &&
                     reader.load<std::uint16_t, 4>() == kWireVersion && welcome.channel.number > 0 &&
                     welcome.channel.number <= ChannelName::kMost && contact;
  if (!sound) return std::nullopt;
  welcome.contact = std::move(*contact);
  return welcome;
}

void Welcome::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kWelcomeMagic);
  writer.store<4>(kWireVersion);
  writer.store<8>(channel.number);
  writer.store<12>(channel.key);
  writer.store<20>(settings.eager_bytes);
  writer.store<24>(settings.window_bytes);
  contact.serialize_to(bytes.subspan<kContactAt, Contact::kSize>());
}

std::optional<Note> Note::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto kind = reader.load<std::uint16_t, 2>();
  if (reader.load<std::uint16_t, 0>() != kNoteMagic || kind == 0 || kind > 2) return std::nullopt;
  return Note{static_cast<Kind>(kind), reader.load<std::uint64_t, 8>()};
}

void Note::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kNoteMagic);
  writer.store<2>(static_cast<std::uint16_t>(kind));
  writer.store<8>(count);
}

std::optional<FrameHead> FrameHead::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto kind = reader.load<std::uint8_t, 2>();
  if (reader.load<std::uint16_t, 0>() != kFrameMagic || kind == 0 || kind > 3) return std::nullopt;
  return FrameHead{static_cast<Kind>(kind),
                   {reader.load<std::uint32_t, 4>(), reader.load<std::uint64_t, 12>()},
                   reader.load<std::uint32_t, 8>()};
}

void FrameHead::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kFrameMagic);
  writer.store<2>(static_cast<std::uint8_t>(kind));
  writer.store<4>(channel.number);
  writer.store<8>(number);
  writer.store<12>(channel.key);
}

}  // namespace clustar::transport::ofi
