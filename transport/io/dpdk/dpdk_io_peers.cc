// The peers of a DpdkIo, and its own address; what it tells people.
#include <fmt/format.h>

#include <algorithm>

#include "transport/io/control_network.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/udp/address.h"

namespace clustar::transport::io::dpdk {
namespace {

udp::IpAddress ip_of(Ipv4 ip) {
  udp::IpAddress address;
  for (unsigned i = 0; i < 4; ++i) address.bytes[i] = static_cast<std::uint8_t>(ip >> (24 - 8 * i));
  return address;
}

Ipv4 ipv4_of(const net::Endpoint& endpoint) {
  Ipv4 ip = 0;
  for (std::size_t i = 0; i < 4; ++i) ip = ip << 8 | std::to_integer<Ipv4>(endpoint.address[i]);
  return ip;
}

}  // namespace

AddressBlob DpdkIo::local_address() const {
  udp::UdpBlob blob;
  if (options_.apart) blob.ip = ip_of(host_->subnet().address);
  for (unsigned k = 0; k < options_.paths; ++k) blob.ports.push_back(static_cast<std::uint16_t>(first_port_ + k));
  return blob.serialize();
}

Result<PeerId> DpdkIo::add_peer(const AddressBlob& address, const net::Endpoint& control) {
  const auto blob = udp::UdpBlob::parse(address);
  if (!blob) return tl::unexpected(blob.error());
  const auto named =
      data_host(control, blob->ip ? std::optional(udp::endpoint_of(*blob->ip)) : std::nullopt, options_.apart);
  if (!named) return fail(named.error().code, "dpdk: " + named.error().message);
  const Ipv4 ip = ipv4_of(*named);
  if (named->ipv6 || ip == 0 || ip >> 28 >= 14) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("dpdk: {} cannot be a peer of {}: IPv4 addresses of hosts only",
                            udp::ip_of(*named).to_string(), to_text(host_->subnet().address)));
  }
  if (blob->ports.size() != options_.paths) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("dpdk: peer {} has {} paths, this end {}: both must be configured with the same number",
                            to_text(ip), blob->ports.size(), options_.paths));
  }
  if (std::ranges::find(blob->ports, 0) != blob->ports.end()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("dpdk: peer {} has a path with port 0", to_text(ip)));
  }
  const auto lock = host_->lock();
  const auto way = host_->find_way(ip);
  if (!way) return tl::unexpected(way.error());
  auto added = peers_.add({ip, *way, blob->ports});
  if (!added) host_->leave_way(*way);
  return added;
}

Result<void> DpdkIo::remove_peer(PeerId peer) {
  const Peer* const known = peers_.find(peer);
  if (known == nullptr) return fail(ErrorCode::kInvalidArgument, fmt::format("dpdk: there is no peer {}", peer));
  const auto lock = host_->lock();
  host_->leave_way(known->way);
  peers_.remove(peer);
  return {};
}

bool DpdkIo::knows_ways() {
  const auto lock = host_->lock();
  bool all = true;
  peers_.for_each([&](const Peer& peer) { all = all && host_->knows(peer.way); });
  return all;
}

std::string DpdkIo::describe() const {
  const auto lock = host_->lock();
  const HostCounters& host = host_->counters();
  std::string text = fmt::format("dpdk: {} on {}: {} packets sent, {} received", to_text(host_->subnet().address),
                                 host_->device().describe(), counters_.packets_sent, counters_.packets_received);
  const auto add = [&text](std::uint64_t value, const char* what) {
    if (value > 0) text += fmt::format(", {} {}", value, what);
  };
  add(counters_.back_pressure, "times it had no room");
  add(host.unreachable, "lost because nobody has the address");
  add(host.full, "lost because they were not read in time");
  add(host.damaged, "damaged");
  add(host.fragments, "fragments");
  add(host.unbound, "for ports that no end has");
  add(counters_.malformed, "malformed");
  add(counters_.strangers, "from strangers");
  return text;
}

}  // namespace clustar::transport::io::dpdk
