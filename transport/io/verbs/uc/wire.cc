#include "transport/io/verbs/uc/wire.h"

#include <algorithm>

#include "transport/base/bytes.h"

namespace clustar::transport::io::verbs::uc {
namespace {

constexpr std::uint32_t kMost24 = 0xffffff;
constexpr std::uint8_t kMostMtuCode = 5;  // IBV_MTU_4096
constexpr std::uint32_t kMostLength = 1u << 30;

}  // namespace

void Preamble::serialize_to(std::span<std::byte, kSize> out) const {
  WireWriter<kSize> writer(out);
  writer.store<0>(static_cast<std::uint8_t>(kind));
  writer.store<1>(kWireVersion);
  writer.store<2>(number);
  writer.store<4>(session);
  writer.store<8>(peer_session);
}

std::optional<Preamble> Preamble::parse(std::span<const std::byte> header) {
  if (header.size() < kSize) return std::nullopt;
  const WireReader<kSize> reader(header.first<kSize>());
  const auto kind = reader.load<std::uint8_t, 0>();
  if (kind < static_cast<std::uint8_t>(Kind::kSession) || kind > static_cast<std::uint8_t>(Kind::kDown)) {
    return std::nullopt;
  }
  if (reader.load<std::uint8_t, 1>() != kWireVersion) return std::nullopt;
  const Preamble preamble{static_cast<Kind>(kind), reader.load<std::uint16_t, 2>(), reader.load<std::uint32_t, 4>(),
                          reader.load<std::uint32_t, 8>()};
  if (preamble.session == 0) return std::nullopt;
  return preamble;
}

void PairEnd::serialize_to(std::span<std::byte, kSize> out) const {
  WireWriter<kSize> writer(out);
  writer.store<0>(queue_pair);
  writer.store<4>(psn);
  writer.store<8>(key);
  writer.store<9>(mtu);
  writer.store<12>(answers);
}

std::optional<PairEnd> PairEnd::parse(std::span<const std::byte> body) {
  if (body.size() != kSize) return std::nullopt;
  const WireReader<kSize> reader(body.first<kSize>());
  const PairEnd end{reader.load<std::uint32_t, 0>(), reader.load<std::uint32_t, 4>(), reader.load<std::uint8_t, 8>(),
                    reader.load<std::uint8_t, 9>(), reader.load<std::uint32_t, 12>()};
  const bool fits = end.queue_pair <= kMost24 && end.psn <= kMost24 && end.answers <= kMost24;
  if (!fits || end.mtu < 1 || end.mtu > kMostMtuCode) return std::nullopt;
  return end;
}

void Grant::serialize_to(std::span<std::byte, kSize> out) const {
  WireWriter<kSize> writer(out);
  writer.store<0>(slot);
  writer.store<8>(id);
  writer.store<12>(rkey);
  writer.store<16>(address);
  writer.store<24>(length);
  writer.store<28>(segment_bytes);
}

std::optional<Grant> Grant::parse(std::span<const std::byte> body) {
  if (body.size() < kSize) return std::nullopt;
  const WireReader<kSize> reader(body.first<kSize>());
  const Grant grant{reader.load<std::uint64_t, 0>(),  reader.load<std::uint32_t, 8>(),
                    reader.load<std::uint32_t, 12>(), reader.load<std::uint64_t, 16>(),
                    reader.load<std::uint32_t, 24>(), reader.load<std::uint32_t, 28>()};
  if (grant.slot == 0 || grant.id == 0 || grant.length == 0 || grant.length > kMostLength) return std::nullopt;
  if (grant.segment_bytes == 0 || grant.segment_bytes > kMostLength) return std::nullopt;
  if (grant.segments() > kMostSegments || grant.address + grant.length < grant.address) return std::nullopt;
  return grant;
}

void WrittenHeader::serialize_to(std::span<std::byte> out) const {
  WireWriter<kFixed> writer(out.first<kFixed>());
  writer.store<0>(grant);
  writer.store<4>(segment);
  writer.store<8>(pair);
  writer.store<9>(static_cast<std::uint8_t>(ect ? 1 : 0));
  writer.store<10>(static_cast<std::uint8_t>(header.size()));
  std::ranges::copy(header, out.begin() + kFixed);
}

std::optional<WrittenHeader> WrittenHeader::parse(std::span<const std::byte> rest) {
  if (rest.size() < kFixed) return std::nullopt;
  const WireReader<kFixed> reader(rest.first<kFixed>());
  const std::size_t size = reader.load<std::uint8_t, 10>();
  const auto flags = reader.load<std::uint8_t, 9>();
  if (size == 0 || size > Header::kMax || kFixed + size > rest.size() || flags > 1) return std::nullopt;
  return WrittenHeader{reader.load<std::uint32_t, 0>(), reader.load<std::uint32_t, 4>(), reader.load<std::uint8_t, 8>(),
                       flags == 1, rest.subspan(kFixed, size)};
}

}  // namespace clustar::transport::io::verbs::uc
