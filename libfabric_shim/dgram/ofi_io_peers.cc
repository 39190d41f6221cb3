// The peers of an OfiIo by address, and its own; what it tells people.
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "libfabric_shim/dgram/ofi_io.h"
#include "transport/io/control_network.h"
#include "transport/net/socket.h"

namespace clustar::transport::ofi {
namespace {

// The host that an address of libfabric names; nothing: none that can be compared with a control connection's.
std::optional<net::Endpoint> host_of(std::uint32_t format, std::span<const std::byte> address) {
  if (format == FI_ADDR_IB_UD && address.size() >= 16) {
    // It begins with a GID; that of RoCE v2 on IPv4 is ::ffff:a.b.c.d.
    constexpr std::array<std::byte, 12> kMapped{
        {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{0xff}, std::byte{0xff}}};
    if (!std::ranges::equal(kMapped, address.first(12))) return std::nullopt;
    net::Endpoint endpoint;
    std::ranges::copy(address.subspan(12, 4), endpoint.address.begin());
    return endpoint;
  }
  sockaddr_storage storage{};
  if (address.size() > sizeof storage) return std::nullopt;
  std::memcpy(&storage, address.data(), address.size());
  const bool ipv4 = storage.ss_family == AF_INET && address.size() == sizeof(sockaddr_in);
  const bool ipv6 = storage.ss_family == AF_INET6 && address.size() == sizeof(sockaddr_in6);
  if (!ipv4 && !ipv6) return std::nullopt;
  return net::Address::of(reinterpret_cast<const sockaddr*>(&storage)).endpoint();
}

bool is_of_sockets(std::uint32_t format) {
  return format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

}  // namespace

Result<void> OfiIo::announce() {
  if (const auto random = net::fill_random(std::as_writable_bytes(std::span(&key_, 1))); !random) return random;
  key_ |= 1;  // never 0
  EndAddress own{provider_of(domain_.info()), key_, static_cast<std::uint16_t>(capabilities_.max_packet), {}};
  for (const Path& path : paths_) own.paths.push_back(path.endpoint.address());
  const auto blob = own.serialize();
  if (!blob) return tl::unexpected(blob.error());
  local_ = *blob;
  return {};
}

Result<std::vector<Peers::Address>> OfiIo::insert(const EndAddress& address) {
  std::vector<Peers::Address> paths;
  for (const auto& path : address.paths) {
    const auto inserted = addresses_->insert(path, paths_.front().endpoint.address().size());
    if (!inserted) {
      left_.insert(left_.end(), paths.begin(), paths.end());
      return tl::unexpected(inserted.error());
    }
    paths.push_back(*inserted);
  }
  return paths;
}

void OfiIo::forget_addresses() {
  if (!send_slots_->all_free()) return;
  for (const Peers::Address address : left_) addresses_->remove(address);
  left_.clear();
}

Result<io::PeerId> OfiIo::add_peer(const io::AddressBlob& address, const net::Endpoint& control) {
  const auto peer = EndAddress::parse(address);
  if (!peer) return tl::unexpected(peer.error());
  const std::string own = provider_of(domain_.info()).substr(0, kMostProvider);
  if (peer->provider != own) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("ofi: the peer's datagrams are those of libfabric's {}, ours of {}; set "
                            "CLUSTAR_OFI_PROVIDER to the same on all ranks",
                            peer->provider, own));
  }
  if (peer->paths.size() != paths_.size()) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("ofi: the peer has {} paths, this end {}: load the same plugin",
                                                      peer->paths.size(), paths_.size()));
  }
  if (peer->max_packet < kLeastPacket) {
    return fail(ErrorCode::kRemote, fmt::format("ofi: the peer takes packets of {} bytes only", peer->max_packet));
  }
  const std::uint32_t format = domain_.info().addr_format;
  const auto ours = host_of(format, paths_.front().endpoint.address());
  for (const auto& path : peer->paths) {
    const auto named = host_of(format, path);
    if (is_of_sockets(format) && (!named || named->port == 0 || named->ipv6 != ours->ipv6)) {
      return fail(ErrorCode::kRemote, fmt::format("ofi: {}: the peer has a path without an address that this end "
                                                  "reaches: both need one address family",
                                                  domain_.name()));
    }
    if (!named) continue;
    if (const auto host = io::data_host(control, named, options_.apart); !host) {
      return fail(host.error().code, "ofi: " + host.error().message);
    }
  }
  auto paths = insert(*peer);
  if (!paths) return tl::unexpected(paths.error());
  const auto most = std::min<std::size_t>(peer->max_packet, capabilities_.max_packet);
  auto added = peers_.add(peer->key, {*paths, most});
  if (!added) left_.insert(left_.end(), paths->begin(), paths->end());
  return added;
}

Result<void> OfiIo::remove_peer(io::PeerId peer) {
  const Peers::Peer* const known = peers_.find(peer);
  if (known == nullptr) return fail(ErrorCode::kInvalidArgument, fmt::format("ofi: there is no peer {}", peer));
  left_.insert(left_.end(), known->paths.begin(), known->paths.end());
  peers_.remove(peer);
  if (const auto reaped = reap(); !reaped && !late_) late_ = reaped.error();
  return {};
}

std::string OfiIo::describe() const {
  std::string text = fmt::format("libfabric's {}, {} endpoints: {} packets sent, {} received", domain_.name(),
                                 paths_.size(), counters_.packets_sent, counters_.packets_received);
  const auto add = [&text](std::uint64_t value, const char* what) {
    if (value > 0) text += fmt::format(", {} {}", value, what);
  };
  add(counters_.back_pressure, "times it had no room");
  add(counters_.slots_empty, "times all receive slots were taken");
  add(counters_.unreachable, "lost for want of a way to the peer");
  add(counters_.truncated, "too long and cut");
  add(counters_.malformed, "malformed");
  add(counters_.strangers, "from strangers");
  return text;
}

}  // namespace clustar::transport::ofi
