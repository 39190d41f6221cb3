#include "transport/io/verbs/ud_wire.h"

#include <algorithm>
#include <array>
#include <string>

#include "transport/base/bytes.h"

namespace clustar::transport::io::verbs {
namespace {

constexpr std::size_t kCountAt = 20;
constexpr std::size_t kPairsAt = 21;

constexpr std::uint32_t kMagic = 0xc1;
constexpr std::size_t kIpv4At = 20;

std::uint8_t byte_at(std::span<const std::byte, kNetworkHeader> bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}

}  // namespace

Result<UdAddress> UdAddress::parse(const AddressBlob& blob) {
  const auto bytes = blob.bytes();
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  const std::size_t count = bytes.size() < kPairsAt ? 0 : at(kCountAt);
  if (count == 0 || bytes.size() != kPairsAt + 3 * count) {
    return fail(ErrorCode::kRemote,
                "verbs UD: the peer's address is damaged: " + std::to_string(bytes.size()) + " bytes");
  }
  UdAddress address;
  for (std::size_t i = 0; i < address.gid.bytes.size(); ++i) address.gid.bytes[i] = static_cast<std::uint8_t>(at(i));
  address.q_key = WireReader(bytes.first<kCountAt>()).load<std::uint32_t, 16>();
  for (std::size_t i = kPairsAt; i < bytes.size(); i += 3) {
    address.queue_pairs.push_back(at(i) << 16 | at(i + 1) << 8 | at(i + 2));
  }
  return address;
}

AddressBlob UdAddress::serialize() const {
  std::array<std::byte, kCountAt> front;
  WireWriter writer{std::span(front)};
  writer.copy_from<0>(std::as_bytes(std::span(gid.bytes)));
  writer.store<16>(q_key);
  std::vector<std::byte> bytes(front.begin(), front.end());
  bytes.push_back(static_cast<std::byte>(queue_pairs.size()));
  for (const std::uint32_t pair : queue_pairs) {
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<std::byte>(pair >> shift));
  }
  return AddressBlob::of(bytes).value();
}

std::uint32_t immediate_of(std::size_t header_bytes) {
  return kMagic << 24 | static_cast<std::uint32_t>(header_bytes & 0xffff);
}

std::optional<std::size_t> header_bytes_of(std::uint32_t immediate, std::size_t length) {
  const std::size_t header = immediate & 0xffff;
  if (immediate >> 16 != kMagic << 8 || header == 0 || header > Header::kMax || header > length) return std::nullopt;
  return header;
}

std::optional<NetworkHeader> parse_network_header(std::span<const std::byte, kNetworkHeader> bytes, bool ipv4) {
  NetworkHeader out;
  if (ipv4) {
    if (byte_at(bytes, kIpv4At) >> 4 != 4) return std::nullopt;
    out.tos = byte_at(bytes, kIpv4At + 1);
    out.source.bytes[10] = out.source.bytes[11] = 0xff;
    for (std::size_t i = 0; i < 4; ++i) out.source.bytes[12 + i] = byte_at(bytes, kIpv4At + 12 + i);
    return out;
  }
  if (byte_at(bytes, 0) >> 4 != 6) return std::nullopt;
  out.tos = static_cast<std::uint8_t>(byte_at(bytes, 0) << 4 | byte_at(bytes, 1) >> 4);
  for (std::size_t i = 0; i < out.source.bytes.size(); ++i) out.source.bytes[i] = byte_at(bytes, 8 + i);
  return out;
}

std::uint32_t flow_label_of(std::uint32_t queue_pair, std::uint8_t path) {
  // Numbers of queue pairs are neighbours; NICs fold the label into 14 bits of the port.
  std::uint64_t mixed = (std::uint64_t{queue_pair} << 8 | path) * 0x9e3779b97f4a7c15;
  mixed ^= mixed >> 32;
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(mixed) & 0xfffff, 1);
}

}  // namespace clustar::transport::io::verbs
