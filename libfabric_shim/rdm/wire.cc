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
  const auto rails = reader.load<std::uint16_t, 0>();
  std::array<std::byte, kProvider> provider;
  reader.copy_to<4>(std::span(provider));
  if (rails == 0 || rails > kMostRails || provider.back() != std::byte{0}) return std::nullopt;
  Contact contact;
  contact.provider = reinterpret_cast<const char*>(provider.data());
  for (std::size_t rail = 0; rail < rails; ++rail) {
    const auto words = bytes.subspan(4 + kProvider + rail * kRail).first<kRail>();
    const auto length = WireReader(words).load<std::uint16_t, 0>();
    if (length == 0 || length > kAddress) return std::nullopt;
    const auto address = words.subspan(4).first(length);
    contact.addresses.emplace_back(address.begin(), address.end());
  }
  return contact;
}

void Contact::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(static_cast<std::uint16_t>(addresses.size()));
  std::memcpy(bytes.data() + 4, provider.data(), std::min(provider.size(), kProvider - 1));
  for (std::size_t rail = 0; rail < std::min(addresses.size(), kMostRails); ++rail) {
    const std::vector<std::byte>& address = addresses[rail];
    const auto words = bytes.subspan(4 + kProvider + rail * kRail).first<kRail>();
    WireWriter(words).store<0>(static_cast<std::uint16_t>(address.size()));
    if (!address.empty()) std::memcpy(words.data() + 4, address.data(), std::min(address.size(), kAddress));
  }
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
  welcome.settings = {reader.load<std::uint32_t, 8>(), reader.load<std::uint32_t, 12>()};
  auto contact = Contact::parse(bytes.subspan<kContactAt, Contact::kSize>());
  const bool sound =
      reader.load<std::uint32_t, 0>() == kWelcomeMagic && reader.load<std::uint16_t, 4>() == kWireVersion && contact;
  if (!sound) return std::nullopt;
  for (std::size_t rail = 0; rail < contact->addresses.size(); ++rail) {
    const WireReader words(bytes.subspan(kChannelsAt + rail * kChannel).first<kChannel>());
    const ChannelName name{words.load<std::uint32_t, 0>(), words.load<std::uint64_t, 4>()};
    if (name.number == 0 || name.number > ChannelName::kMost) return std::nullopt;
    welcome.channels.push_back(name);
  }
  welcome.contact = std::move(*contact);
  return welcome;
}

void Welcome::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kWelcomeMagic);
  writer.store<4>(kWireVersion);
  writer.store<8>(settings.eager_bytes);
  writer.store<12>(settings.window_bytes);
  for (std::size_t rail = 0; rail < std::min(channels.size(), Contact::kMostRails); ++rail) {
    WireWriter words(bytes.subspan(kChannelsAt + rail * kChannel).first<kChannel>());
    words.store<0>(channels[rail].number);
    words.store<4>(channels[rail].key);
  }
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
  if (reader.load<std::uint16_t, 0>() != kFrameMagic || kind == 0 || kind > 5) return std::nullopt;
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

std::optional<ChunkFrame> ChunkFrame::parse(const FrameHead& head, std::span<const std::byte> bytes) {
  using Kind = FrameHead::Kind;
  ChunkFrame frame;
  if (head.kind == Kind::kWhole || head.kind == Kind::kAhead) {
    constexpr std::size_t kOwn = kWholeSize - FrameHead::kSize;
    if (bytes.size() < kOwn || bytes.size() - kOwn > tcp::kMaxChunkBytes) return std::nullopt;
    const WireReader reader(bytes.first<kOwn>());
    frame.payload = bytes.subspan(kOwn);
    frame.header.has_slot = head.kind == Kind::kWhole;
    frame.header.slot = head.number;
    frame.header.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 0>());
    frame.header.seq = reader.load<std::uint32_t, 4>();
    frame.header.total = frame.payload.size();
    frame.header.length = static_cast<std::uint32_t>(frame.payload.size());
    return frame;
  }
  if (head.kind == Kind::kHello || bytes.size() < ChunkHeader::kSize) return std::nullopt;
  const auto header = ChunkHeader::parse(bytes.first<ChunkHeader::kSize>());
  if (!header || bytes.size() < header->size()) return std::nullopt;
  frame.header = *header;
  const auto identity = bytes.subspan(ChunkHeader::kSize);
  if (header->identity.known && !frame.header.parse_identity(identity.first<ChunkHeader::kIdentitySize>())) {
    return std::nullopt;
  }
  frame.payload = bytes.subspan(header->size());
  // What is asked for goes to a receive that is known.
  const bool sound = head.kind == Kind::kInline ? frame.payload.size() == header->length
                                                : frame.payload.empty() && header->has_slot && header->length > 0;
  return sound ? std::optional(frame) : std::nullopt;
}

std::size_t serialize_front(const ChannelName& channel, const ChunkHeader& header, std::optional<std::uint32_t> number,
                            std::span<std::byte, ChunkFrame::kMost> bytes) {
  using Kind = FrameHead::Kind;
  const auto head = bytes.first<FrameHead::kSize>();
  const bool whole = !number && header.offset == 0 && header.length == header.total && !header.identity.known;
  if (whole) {
    FrameHead{header.has_slot ? Kind::kWhole : Kind::kAhead, channel, header.has_slot ? header.slot : 0}.serialize_to(
        head);
    WireWriter writer(bytes.subspan<FrameHead::kSize, ChunkFrame::kWholeSize - FrameHead::kSize>());
    writer.store<0>(static_cast<std::uint32_t>(header.tag));
    writer.store<4>(header.seq);
    return ChunkFrame::kWholeSize;
  }
  FrameHead{number ? Kind::kAnnounced : Kind::kInline, channel, number.value_or(0)}.serialize_to(head);
  header.serialize_to(bytes.subspan<FrameHead::kSize, ChunkHeader::kSize>());
  if (header.identity.known) {
    header.serialize_identity_to(bytes.subspan<FrameHead::kSize + ChunkHeader::kSize, ChunkHeader::kIdentitySize>());
  }
  return FrameHead::kSize + header.size();
}

}  // namespace clustar::transport::ofi
