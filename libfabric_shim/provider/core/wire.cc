#include "libfabric_shim/provider/core/wire.h"

#include "transport/base/bytes.h"

namespace clustar::libfabric_shim::provider {
namespace {

constexpr std::uint16_t kTagged = 1;
constexpr std::uint16_t kHasData = 2;

template <std::size_t Size>
bool ours(const WireReader<Size>& reader) {
  return reader.template load<std::uint32_t, 0>() == kMagic && reader.template load<std::uint8_t, 4>() == kWireVersion;
}

template <std::size_t Size>
void sign(WireWriter<Size>& writer) {
  writer.template store<0>(kMagic);
  writer.template store<4>(kWireVersion);
}

bool length_fits(const Header& header, std::size_t behind) {
  switch (header.kind) {
    case Kind::kHello: return header.length == Hello::kSize && behind == Hello::kSize;
    case Kind::kEager: return header.length == behind;
    case Kind::kRendezvous:
      return behind == 0 && header.length > 0 && header.length <= kMaxMessageBytes && header.slot < kSlots;
  }
  return false;
}

}  // namespace

void Question::serialize_to(std::span<std::byte, kSize> out) {
  WireWriter<kSize> writer(out);
  sign(writer);
}

bool Question::parse(std::span<const std::byte, kSize> in) { return ours(WireReader<kSize>(in)); }

void Answer::serialize_to(std::span<std::byte, kSize> out) const {
  WireWriter<kSize> writer(out);
  sign(writer);
  writer.store<8>(eager_bytes);
  writer.copy_from<16>(std::span(handle));
}

std::optional<Answer> Answer::parse(std::span<const std::byte, kSize> in) {
  const WireReader<kSize> reader(in);
  if (!ours(reader)) return std::nullopt;
  Answer answer;
  answer.eager_bytes = reader.load<std::uint32_t, 8>();
  reader.copy_to<16>(std::span(answer.handle));
  return answer;
}

void Header::serialize_to(std::span<std::byte, kSize> out) const {
  WireWriter<kSize> writer(out);
  sign(writer);
  writer.store<5>(static_cast<std::uint8_t>(kind));
  writer.store<6>(static_cast<std::uint16_t>((tagged ? kTagged : 0) | (has_data ? kHasData : 0)));
  writer.store<8>(tag);
  writer.store<16>(length);
  writer.store<24>(data);
  writer.store<32>(slot);
}

std::optional<Header> Header::parse(std::span<const std::byte> message) {
  if (message.size() < kSize) return std::nullopt;
  const WireReader<kSize> reader(message.first<kSize>());
  const auto flags = reader.load<std::uint16_t, 6>();
  if (!ours(reader) || (flags & ~(kTagged | kHasData)) != 0) return std::nullopt;
  Header header;
  header.kind = static_cast<Kind>(reader.load<std::uint8_t, 5>());
  header.tagged = (flags & kTagged) != 0;
  header.has_data = (flags & kHasData) != 0;
  header.tag = reader.load<std::uint64_t, 8>();
  header.length = reader.load<std::uint64_t, 16>();
  header.data = reader.load<std::uint64_t, 24>();
  header.slot = reader.load<std::uint16_t, 32>();
  if (!length_fits(header, message.size() - kSize)) return std::nullopt;
  return header;
}

void Hello::serialize_to(std::span<std::byte, kSize> out) const {
  WireWriter<kSize> writer(out);
  writer.store<0>(static_cast<std::uint8_t>(endpoint.ipv6 ? 6 : 4));
  writer.store<2>(endpoint.port);
  writer.copy_from<8>(std::span(endpoint.address));
}

std::optional<Hello> Hello::parse(std::span<const std::byte> payload) {
  if (payload.size() != kSize) return std::nullopt;
  const WireReader<kSize> reader(payload.first<kSize>());
  const auto family = reader.load<std::uint8_t, 0>();
  if (family != 4 && family != 6) return std::nullopt;
  Hello hello;
  hello.endpoint.ipv6 = family == 6;
  hello.endpoint.port = reader.load<std::uint16_t, 2>();
  reader.copy_to<8>(std::span(hello.endpoint.address));
  return hello;
}

}  // namespace clustar::libfabric_shim::provider
