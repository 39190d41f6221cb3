// The peers of a UdIo by address, and its own; what it tells people.
#include <fmt/format.h>

#include "transport/io/control_network.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::transport::io::verbs {

Result<PeerId> UdIo::add_peer(const AddressBlob& address, const net::Endpoint& control) {
  auto parsed = UdAddress::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  const auto host = data_host(control, endpoint_of(parsed->gid), options_.apart);
  if (!host) return fail(host.error().code, "verbs UD: " + host.error().message);
  return add_peer(*parsed);
}

Result<PeerId> UdIo::add_peer(const UdAddress& address) {
  if (address.gid.ipv4() != gid_.gid.ipv4()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("verbs UD: {} cannot reach {}: one is IPv4, the other IPv6",
                                                         gid_.gid.to_string(), address.gid.to_string()));
  }
  return peers_.add(address, clock_.now());
}

Result<void> UdIo::remove_peer(PeerId peer) {
  auto removed = peers_.remove(peer, tx_->taken());
  peers_.finished(tx_->finished());
  return removed;
}

std::string UdIo::describe() const {
  std::string text = fmt::format(
      "verbs UD on {}: {} packets in {} posts, {} received, {} from strangers, {} malformed, {} back-pressure",
      device_.place(options_.port).to_string(), counters_.packets_sent, counters_.post_calls,
      counters_.packets_received, counters_.strangers, counters_.malformed, counters_.back_pressure);
  const auto add = [&text](std::uint64_t value, const char* what) {
    if (value > 0) text += fmt::format(", {} {}", value, what);
  };
  add(counters_.unresolved, "lost to peers that did not answer ARP");
  add(counters_.slots_empty, "times all receive slots were taken");
  add(counters_.link_lost, "lost with queue pairs that had failed");
  add(counters_.restarts, "times such a queue pair went on");
  add(counters_.port_errors, "times the link went down");
  add(counters_.renewed, "times a peer's Ethernet address was asked for again");
  if (writer_) {
    const DeviceWriter::Counters count = writer_->counters();
    text += fmt::format(", {} bytes written and {} zeroed by the NIC in GPU memory{}, {} flushes", count.written,
                        count.zeroed, options_.memory.facts.emulated ? " (emulated)" : "", count.flushes);
  }
  return text;
}

}  // namespace clustar::transport::io::verbs
