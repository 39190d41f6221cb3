#include "bench/fabric/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/fabric/interface.h"
#include "bench/fabric/namespaces.h"
#include "bench/fabric/netlink.h"

namespace clustar::bench::fabric {
namespace {

constexpr std::uint32_t kLineClass = 0x00010001;  // 1:1, the one class of HTB

// The queues of one interface: HTB with its rate, and the bfifo in it.
struct Line {
  bool shaped = false;
  std::uint64_t rate_bps = 0, buffer_bytes = 0;
  Traffic sent;  // by HTB; a link without it has its own counters
};

Line line_of(const Link& link, const std::vector<Queue>& queues) {
  Line line;
  line.sent = {link.tx_packets, link.tx_bytes, link.tx_drops, 0};
  for (const Queue& queue : queues) {
    if (queue.link != link.index) continue;
    if (queue.kind == "htb") {
      line.shaped = true;
      line.sent = {queue.packets, queue.bytes, queue.drops, queue.backlog_bytes};
    }
    if (queue.kind == "bfifo" && queue.parent == kLineClass) line.buffer_bytes = queue.limit_bytes;
  }
  if (!line.shaped) return line;
  const auto classes = read_classes(link.index);
  for (const Queue& one : classes ? *classes : std::vector<Queue>()) {
    if (one.handle == kLineClass) line.rate_bps = one.rate_bps;
  }
  return line;
}

const Link* find_link(const std::vector<Link>& links, const std::string& name) {
  const auto found = std::find_if(links.begin(), links.end(), [&](const Link& link) { return link.name == name; });
  return found == links.end() ? nullptr : &*found;
}

class Inspector {
 public:
  explicit Inspector(FabricStatus& status) : status_(status) {}

  // In the switch's namespace.
  Result<void> look_at_switch() {
    const auto links = read_links();
    if (!links) return tl::unexpected(links.error());
    const auto queues = read_queues();
    if (!queues) return tl::unexpected(queues.error());
    const Link* bridge = find_link(*links, kBridge);
    if (bridge == nullptr || !bridge->up) problem("the switch has no bridge that is up");
    for (PortStatus& port : status_.ports) {
      const std::string name = port_name(port.host);
      const Link* link = find_link(*links, name);
      if (link == nullptr || !link->up || bridge == nullptr || link->master != bridge->index) {
        problem(fmt::format("the switch has no port to host {} that is up and part of the bridge", port.host));
        continue;
      }
      const Line line = line_of(*link, *queues);
      port.mtu = link->mtu;
      port.rate_bps = line.rate_bps;
      port.buffer_bytes = line.buffer_bytes;
      port.to_host = line.sent;
      port.from_host = {link->rx_packets, link->rx_bytes, 0, 0};
      if (line.shaped && (line.rate_bps == 0 || line.buffer_bytes == 0)) {
        problem(fmt::format("the switch's port to host {} has a rate without its queue", port.host));
      }
      merging(name, Merging::kReceiving);
    }
    return {};
  }

  // In the host's namespace.
  Result<void> look_at_host(PortStatus& port) {
    const auto links = read_links();
    if (!links) return tl::unexpected(links.error());
    const auto queues = read_queues();
    if (!queues) return tl::unexpected(queues.error());
    const Link* link = find_link(*links, kHostInterface);
    port.address = address_of(kHostInterface);
    if (link == nullptr || !link->up || port.address != host_address(port.host)) {
      problem(fmt::format("host {} has no {} that is up with address {}", port.host, kHostInterface,
                          host_address(port.host)));
      return {};
    }
    const Link* loopback = find_link(*links, "lo");
    if (loopback == nullptr || !loopback->up) problem(fmt::format("host {}: lo is down", port.host));
    const Line line = line_of(*link, *queues);
    port.host_rate_bps = line.rate_bps;
    port.from_host.drops = line.shaped ? line.sent.drops : 0;
    port.from_host.waiting_bytes = line.sent.waiting_bytes;
    if (link->mtu != port.mtu) {
      problem(fmt::format("host {}: MTU {} at the host, {} at the switch", port.host, link->mtu, port.mtu));
    }
    if (port.host_rate_bps != port.rate_bps) {
      problem(fmt::format("host {}: {} from the host, {} to it", port.host, rate_text(port.host_rate_bps),
                          rate_text(port.rate_bps)));
    }
    merging(fmt::format("host {}", port.host), Merging::kSending);
    return {};
  }

  void problem(std::string text) { status_.problems.push_back(std::move(text)); }

 private:
  // `where` is the interface's name at the switch, or the host.
  void merging(const std::string& where, Merging direction) {
    const auto on = merging_features(direction == Merging::kSending ? kHostInterface : where, direction);
    if (!on) problem(on.error().message);
    if (on && !on->empty()) problem(fmt::format("{}: {} on, so super-packets pass", where, fmt::join(*on, ", ")));
  }

  FabricStatus& status_;
};

// The spec that the ports have in common; a problem for each that differs from the first.
void read_spec(FabricStatus& status, Inspector& inspector) {
  if (status.ports.empty()) return;
  const PortStatus& first = status.ports.front();
  status.spec.mtu = first.mtu;
  status.spec.rate_bps = first.rate_bps;
  status.spec.buffer_bytes = first.buffer_bytes;
  for (const PortStatus& port : status.ports) {
    if (port.mtu != first.mtu || port.rate_bps != first.rate_bps || port.buffer_bytes != first.buffer_bytes) {
      inspector.problem(fmt::format("the port of host {} differs from that of host {}", port.host, first.host));
    }
  }
}

}  // namespace

Result<FabricStatus> inspect(const std::string& fabric) {
  FabricStatus status;
  status.spec = {fabric, 0, 0, 0, 0};
  Inspector inspector(status);
  bool has_switch = false;
  for (const std::string& name : namespaces_of(fabric)) {
    status.exists = true;
    const int host = parse_namespace(name)->host;
    if (!is_namespace(name)) {
      inspector.problem(fmt::format("{} is only a file, not a namespace", name));
    } else if (host < 0) {
      has_switch = true;
    } else {
      status.ports.push_back({host, name, {}, 0, 0, 0, 0, {}, {}});
    }
  }
  if (!status.exists) return status;
  if (has_switch) {
    const auto done = run_inside(switch_namespace(fabric), [&] { return inspector.look_at_switch(); });
    if (!done) return tl::unexpected(done.error());
  } else {
    inspector.problem("there is no switch");
  }
  for (PortStatus& port : status.ports) {
    const auto done = run_inside(port.host_namespace, [&] { return inspector.look_at_host(port); });
    if (!done) return tl::unexpected(done.error());
  }
  status.spec.hosts = static_cast<int>(status.ports.size());
  if (status.spec.hosts == 0) inspector.problem("there are no hosts");
  if (!status.ports.empty() && status.ports.back().host != status.spec.hosts - 1) {
    inspector.problem(fmt::format("a host below {} is missing", status.ports.back().host));
  }
  read_spec(status, inspector);
  return status;
}

}  // namespace clustar::bench::fabric
