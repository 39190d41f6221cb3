#include "libfabric_shim/dgram/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/bytes.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::ofi {
namespace {

constexpr std::uint8_t kVersion = 0xd1;
constexpr std::size_t kFixed = 13 + kMostProvider;
constexpr std::size_t kPathsAt = 11 + kMostProvider;
constexpr std::size_t kMostAddress = 64;
constexpr std::uint8_t kMostClass = 7;

using Bytes = std::span<const std::byte>;

bool differs(Bytes mask, std::size_t i) { return (mask[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0}; }

}  // namespace

void write_frame(std::span<std::byte> out, std::uint64_t key, std::size_t header_bytes, std::uint8_t traffic_class) {
  WireWriter<kDatagramFrame> writer{out.first<kDatagramFrame>()};
  writer.store<0>(key);
  writer.store<8>(static_cast<std::uint8_t>(header_bytes));
  writer.store<9>(traffic_class);
}

std::optional<DatagramFrame> parse_frame(Bytes datagram) {
  if (datagram.size() < kDatagramFrame) return std::nullopt;
  const WireReader<kDatagramFrame> reader{datagram.first<kDatagramFrame>()};
  const std::size_t header = reader.load<std::uint8_t, 8>();
  const auto traffic_class = reader.load<std::uint8_t, 9>();
  const Bytes rest = datagram.subspan(kDatagramFrame);
  if (header == 0 || header > io::Header::kMax || header > rest.size() || traffic_class > kMostClass) {
    return std::nullopt;
  }
  return DatagramFrame{reader.load<std::uint64_t, 0>(), traffic_class, rest.first(header), rest.subspan(header)};
}

Result<io::AddressBlob> EndAddress::serialize() const {
  std::vector<std::byte> bytes(kFixed);
  WireWriter<kFixed> writer{std::span<std::byte>(bytes).first<kFixed>()};
  const std::vector<std::byte>& first = paths.front();
  writer.store<0>(kVersion);
  writer.store<1>(max_packet);
  std::transform(provider.begin(),
                 provider.begin() + static_cast<std::ptrdiff_t>(std::min(provider.size(), kMostProvider)),
                 bytes.begin() + 3, [](char c) { return static_cast<std::byte>(c); });
  writer.store<3 + kMostProvider>(key);
  writer.store<kPathsAt>(static_cast<std::uint8_t>(paths.size()));
  writer.store<kPathsAt + 1>(static_cast<std::uint8_t>(first.size()));
  bytes.insert(bytes.end(), first.begin(), first.end());
  std::vector<std::byte> mask((first.size() + 7) / 8);
  for (const auto& path : paths) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (path.at(i) != first[i]) mask[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
    }
  }
  bytes.insert(bytes.end(), mask.begin(), mask.end());
  for (std::size_t k = 1; k < paths.size(); ++k) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (differs(mask, i)) bytes.push_back(paths[k][i]);
    }
  }
  const auto blob = io::AddressBlob::of(bytes);
  if (blob && first.size() <= kMostAddress) return *blob;
  return fail(ErrorCode::kUnavailable,
              fmt::format("ofi: {} addresses of {} bytes of {} are more than a handshake has room for", paths.size(),
                          first.size(), provider));
}

Result<EndAddress> EndAddress::parse(const io::AddressBlob& blob) {
  const Bytes bytes = blob.bytes();
  const auto damaged = [&] {
    return fail(ErrorCode::kRemote, fmt::format("ofi: the peer's address is damaged, or of another version of clustar: "
                                                "{} bytes",
                                                bytes.size()));
  };
  if (bytes.size() < kFixed) return damaged();
  const WireReader<kFixed> reader{bytes.first<kFixed>()};
  const std::size_t paths = reader.load<std::uint8_t, kPathsAt>();
  const std::size_t length = reader.load<std::uint8_t, kPathsAt + 1>();
  const std::size_t mask_bytes = (length + 7) / 8;
  const bool sound = reader.load<std::uint8_t, 0>() == kVersion && paths > 0 && paths <= kMostPaths && length > 0 &&
                     length <= kMostAddress && bytes.size() >= kFixed + length + mask_bytes;
  if (!sound) return damaged();
  const Bytes first = bytes.subspan(kFixed, length);
  const Bytes mask = bytes.subspan(kFixed + length, mask_bytes);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 8 * mask_bytes; ++i) {
    if (differs(mask, i)) places.push_back(i);
  }
  Bytes rest = bytes.subspan(kFixed + length + mask_bytes);
  if ((!places.empty() && places.back() >= length) || rest.size() != (paths - 1) * places.size()) return damaged();
  EndAddress address{.max_packet = reader.load<std::uint16_t, 1>()};
  address.key = reader.load<std::uint64_t, 3 + kMostProvider>();
  for (const std::byte character : bytes.subspan(3, kMostProvider)) {
    if (character == std::byte{0}) break;
    address.provider.push_back(static_cast<char>(character));
  }
  if (address.key == 0 || address.max_packet == 0 || address.provider.empty()) return damaged();
  address.paths.assign(paths, {first.begin(), first.end()});
  for (std::size_t k = 1; k < paths; ++k) {
    for (const std::size_t place : places) {
      address.paths[k][place] = rest.front();
      rest = rest.subspan(1);
    }
  }
  return address;
}

}  // namespace clustar::transport::ofi
