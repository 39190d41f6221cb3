#include "transport/verbs/core/wire.h"

#include <cassert>
#include <cstring>

#include "transport/base/bytes.h"
#include "transport/base/rng.h"

namespace clustar::transport::verbs {
namespace {

constexpr std::uint32_t kWelcomeMagic = 0x434c5657;  // "CLVW"
constexpr std::uint16_t kFarewellMagic = 0x4656;     // "FV"
constexpr std::size_t kPortSize = 20;
constexpr std::size_t kQueuePairSize = 12;
constexpr std::size_t kPortsAt = 40;
constexpr std::size_t kQueuePairsAt = kPortsAt + kMaxPorts * kPortSize;
static_assert(kQueuePairsAt + kMaxQueuePairs * kQueuePairSize <= Contact::kSize);
constexpr std::uint16_t kKnown = 1;
constexpr std::uint16_t kLocalNumber = 2;
constexpr std::size_t kIdentityAt = 28;  // in a message header

std::uint32_t check_of(std::span<const std::byte, Descriptor::kSize> bytes) {
  std::uint64_t sum = kGoldenGamma;
  for (std::size_t at = 0; at < Descriptor::kSize - 8; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum = mix64(sum ^ word);
  }
  return static_cast<std::uint32_t>(sum >> 32);
}

}  // namespace

//  0         8      12   13      14  16         32 40
// | address | eager | np | nq | 0 | keys (4 x 4) | 0 | 4 x port | 8 x queue pair |
std::optional<Contact> Contact::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  Contact contact;
  contact.address = reader.load<std::uint64_t, 0>();
  contact.eager_bytes = reader.load<std::uint32_t, 8>();
  const auto ports = reader.load<std::uint8_t, 12>();
  const auto pairs = reader.load<std::uint8_t, 13>();
  contact.keys = {reader.load<std::uint32_t, 16>(), reader.load<std::uint32_t, 20>(), reader.load<std::uint32_t, 24>(),
                  reader.load<std::uint32_t, 28>()};
  if (ports == 0 || ports > kMaxPorts || pairs == 0 || pairs > kMaxQueuePairs || contact.eager_bytes > kMaxEagerBytes) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < ports; ++i) {
    const WireReader port{std::span<const std::byte, kPortSize>(bytes.data() + kPortsAt + i * kPortSize, kPortSize)};
    PortContact& made = contact.ports.emplace_back();
    std::memcpy(made.gid.data(), bytes.data() + kPortsAt + i * kPortSize, made.gid.size());
    made.lid = port.load<std::uint16_t, 16>();
    made.mtu = port.load<std::uint8_t, 18>();
    made.ethernet = port.load<std::uint8_t, 19>() != 0;
    if (made.mtu < 1 || made.mtu > 5) return std::nullopt;
  }
  for (std::size_t i = 0; i < pairs; ++i) {
    const WireReader pair{
        std::span<const std::byte, kQueuePairSize>(bytes.data() + kQueuePairsAt + i * kQueuePairSize, kQueuePairSize)};
    const QueuePairContact made{pair.load<std::uint32_t, 0>(), pair.load<std::uint32_t, 4>(),
                                pair.load<std::uint8_t, 8>()};
    if (made.number >= 1u << 24 || made.psn >= 1u << 24 || made.port >= ports) return std::nullopt;
    contact.queue_pairs.push_back(made);
  }
  return contact;
}

void Contact::serialize_to(std::span<std::byte, kSize> bytes) const {
  assert(!ports.empty() && ports.size() <= kMaxPorts);
  assert(!queue_pairs.empty() && queue_pairs.size() <= kMaxQueuePairs);
  WireWriter writer(bytes);
  writer.store<0>(address);
  writer.store<8>(eager_bytes);
  writer.store<12>(static_cast<std::uint8_t>(ports.size()));
  writer.store<13>(static_cast<std::uint8_t>(queue_pairs.size()));
  writer.store<16>(keys[0]);
  writer.store<20>(keys[1]);
  writer.store<24>(keys[2]);
  writer.store<28>(keys[3]);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    WireWriter port{std::span<std::byte, kPortSize>(bytes.data() + kPortsAt + i * kPortSize, kPortSize)};
    std::memcpy(bytes.data() + kPortsAt + i * kPortSize, ports[i].gid.data(), ports[i].gid.size());
    port.store<16>(ports[i].lid);
    port.store<18>(ports[i].mtu);
    port.store<19>(static_cast<std::uint8_t>(ports[i].ethernet ? 1 : 0));
  }
  for (std::size_t i = 0; i < queue_pairs.size(); ++i) {
    WireWriter pair{
        std::span<std::byte, kQueuePairSize>(bytes.data() + kQueuePairsAt + i * kQueuePairSize, kQueuePairSize)};
    pair.store<0>(queue_pairs[i].number);
    pair.store<4>(queue_pairs[i].psn);
    pair.store<8>(queue_pairs[i].port);
  }
}

std::optional<Hello> Hello::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  if (reader.load<std::uint32_t, 0>() != kFormat.magic || reader.load<std::uint16_t, 4>() != kWireVersion) {
    return std::nullopt;
  }
  Hello hello;
  reader.copy_to<8>(std::span<std::byte, 16>(hello.token));
  hello.rank = handshake::rank_of(reader.load<std::uint32_t, 24>());
  const auto contact = Contact::parse(bytes.subspan<kContactAt, Contact::kSize>());
  if (!contact) return std::nullopt;
  hello.contact = *contact;
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
  if (reader.load<std::uint32_t, 0>() != kWelcomeMagic || reader.load<std::uint16_t, 4>() != kWireVersion) {
    return std::nullopt;
  }
  const auto contact = Contact::parse(bytes.subspan<8, Contact::kSize>());
  if (!contact) return std::nullopt;
  return Welcome{*contact};
}

void Welcome::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kWelcomeMagic);
  writer.store<4>(kWireVersion);
  contact.serialize_to(bytes.subspan<8, Contact::kSize>());
}

std::optional<Farewell> Farewell::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto kind = reader.load<std::uint8_t, 2>();
  Farewell farewell;
  farewell.queue_pair = reader.load<std::uint8_t, 3>();
  if (reader.load<std::uint16_t, 0>() != kFarewellMagic || kind < 1 || kind > 3 ||
      farewell.queue_pair >= kMaxQueuePairs) {
    return std::nullopt;
  }
  farewell.kind = static_cast<Kind>(kind);
  for (std::size_t i = 0; i < kMaxQueuePairs; ++i) {
    const WireReader count{std::span<const std::byte, 4>(bytes.data() + 4 + 4 * i, 4)};
    farewell.arrived[i] = count.load<std::uint32_t, 0>();
  }
  return farewell;
}

void Farewell::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kFarewellMagic);
  writer.store<2>(static_cast<std::uint8_t>(kind));
  writer.store<3>(queue_pair);
  for (std::size_t i = 0; i < kMaxQueuePairs; ++i) {
    WireWriter count{std::span<std::byte, 4>(bytes.data() + 4 + 4 * i, 4)};
    count.store<0>(arrived[i]);
  }
}

std::optional<Descriptor> Descriptor::parse(std::span<const std::byte, kSize> bytes, std::uint32_t number) {
  const WireReader reader(bytes);
  if (reader.load<std::uint32_t, 0>() != number + 1) return std::nullopt;
  if (reader.load<std::uint32_t, 60>() != check_of(bytes)) return std::nullopt;
  Descriptor made;
  made.number = number;
  made.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 4>());
  made.seq = reader.load<std::uint32_t, 8>();
  made.slot = reader.load<std::uint32_t, 12>();
  made.address = reader.load<std::uint64_t, 16>();
  made.length = reader.load<std::uint64_t, 24>();
  made.keys = {reader.load<std::uint32_t, 32>(), reader.load<std::uint32_t, 36>(), reader.load<std::uint32_t, 40>(),
               reader.load<std::uint32_t, 44>()};
  made.eager_freed = reader.load<std::uint32_t, 48>();
  if (made.length > kMaxMessageBytes || slot_index(made.slot) >= kMaxSlots) return std::nullopt;
  return made;
}

void Descriptor::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(number + 1);
  writer.store<4>(static_cast<std::uint32_t>(tag));
  writer.store<8>(seq);
  writer.store<12>(slot);
  writer.store<16>(address);
  writer.store<24>(length);
  writer.store<32>(keys[0]);
  writer.store<36>(keys[1]);
  writer.store<40>(keys[2]);
  writer.store<44>(keys[3]);
  writer.store<48>(eager_freed);
  writer.store<60>(check_of(bytes));
}

std::optional<MessageHeader> MessageHeader::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  MessageHeader made;
  made.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 0>());
  made.seq = reader.load<std::uint32_t, 4>();
  made.slot = reader.load<std::uint32_t, 8>();
  const auto flags = reader.load<std::uint16_t, 12>();
  made.stripes = reader.load<std::uint16_t, 14>();
  made.total = reader.load<std::uint64_t, 16>();
  made.consumed = reader.load<std::uint32_t, 24>();
  if (flags > (kKnown | kLocalNumber) || made.stripes == 0 || made.stripes > kMaxStripes ||
      made.total > kMaxMessageBytes || slot_index(made.slot) >= kMaxSlots) {
    return std::nullopt;
  }
  if ((flags & kKnown) == 0) return made;
  made.identity.known = true;
  made.identity.local_number = (flags & kLocalNumber) != 0;
  parse_identity(bytes.subspan<kIdentityAt, kIdentityWireSize>(), made.identity);
  return made;
}

void MessageHeader::serialize_to(std::span<std::byte, kSize> bytes) const {
  // A number that the wire cannot say is not known.
  const bool known = identity.known && identity.number < MessageIdentity::kNumbers;
  WireWriter writer(bytes);
  writer.store<0>(static_cast<std::uint32_t>(tag));
  writer.store<4>(seq);
  writer.store<8>(slot);
  writer.store<12>(static_cast<std::uint16_t>(known ? kKnown | (identity.local_number ? kLocalNumber : 0) : 0));
  writer.store<14>(stripes);
  writer.store<16>(total);
  writer.store<24>(consumed);
  if (!known) return;
  serialize_identity(identity, bytes.subspan<kIdentityAt, kIdentityWireSize>());
}

std::optional<Immediate> Immediate::parse(std::uint32_t word) {
  Immediate made;
  const std::uint32_t kind = word >> 30;
  if (kind > 2) return std::nullopt;
  made.kind = static_cast<Kind>(kind);
  if (made.kind == Kind::kStripe) {
    if ((word >> 23 & 0x7f) != 0) return std::nullopt;
    made.has_header = (word >> 22 & 1) != 0;
    made.stripe = word >> 16 & 0x3f;
    made.slot = make_slot(word & 0xff, static_cast<std::uint16_t>(word >> 8 & 0xff));
  } else {
    made.number = word & (made.kind == Kind::kEager ? 0xffff : 0xffffff);
  }
  return made;
}

std::uint32_t Immediate::serialize() const {
  const std::uint32_t front = static_cast<std::uint32_t>(kind) << 30;
  if (kind == Kind::kEager) return front | (number & 0xffff);
  if (kind == Kind::kConsumed) return front | (number & 0xffffff);
  return front | (has_header ? 1u << 22 : 0) | (stripe & 0x3f) << 16 | (slot >> 16 & 0xff) << 8 | (slot & 0xff);
}

}  // namespace clustar::transport::verbs
