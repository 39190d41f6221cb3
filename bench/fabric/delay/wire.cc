#include "bench/fabric/delay/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "bench/fabric/delay/delay_line.h"
#include "bench/fabric/netlink.h"

namespace clustar::bench::fabric {
namespace {

std::string half(const char* side, int number) { return fmt::format("w{}{}", side, number); }

const Node& node_at(const Topology& topology, const LinkEnd& end) {
  return topology.nodes[static_cast<std::size_t>(end.node)];
}

}  // namespace

std::string WireCable::near_half() const { return half("a", number); }
std::string WireCable::far_half() const { return half("b", number); }

const char* to_string(DelayCarrier carrier) {
  switch (carrier) {
    case DelayCarrier::kNone: return "none";
    case DelayCarrier::kNetem: return "netem";
    case DelayCarrier::kForwarder: return "forwarder";
  }
  return "?";
}

std::vector<WireCable> wire_cables(const Topology& topology) {
  std::vector<WireCable> cables;
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    const TopologyLink& link = topology.links[i];
    if (link.delay_ns == 0) continue;
    cables.push_back({static_cast<int>(i), node_at(topology, link.ends[0]).name, node_at(topology, link.ends[1]).name,
                      link.ends[0].rate_bps, link.delay_ns, link.mtu, true});
  }
  return cables;
}

std::string wire_lines(const Topology& topology) {
  std::string lines;
  for (const WireCable& cable : wire_cables(topology)) {
    const LinkEnd& end = topology.links[static_cast<std::size_t>(cable.number)].ends[0];
    lines +=
        fmt::format("link add {0} mtu {1} type veth peer name {2} mtu {1}{3} netns {4}\n", cable.near_half(), cable.mtu,
                    end.interface, end.mac.empty() ? "" : " address " + end.mac, node_at(topology, end).net_namespace);
    for (const std::string& one : {cable.near_half(), cable.far_half()}) {
      lines += fmt::format("link set dev {} up alias \"{} {} {} {}\"\n", one, cable.a, cable.b, cable.delay_ns,
                           cable.rate_bps);
    }
  }
  return lines;
}

std::string netem_trial_lines() { return "qdisc add dev lo root netem delay 1ms\nqdisc del dev lo root\n"; }

std::string netem_bridge_lines(const std::vector<WireCable>& cables) {
  std::string lines;
  for (const WireCable& cable : cables) {
    const std::string bridge = half("", cable.number);
    lines += fmt::format("link add {} mtu {} type bridge mcast_snooping 0\n", bridge, cable.mtu);
    lines += fmt::format("link set {} master {}\nlink set {} master {}\nlink set {} up\n", cable.near_half(), bridge,
                         cable.far_half(), bridge, bridge);
  }
  return lines;
}

std::string netem_lines(const std::vector<WireCable>& cables) {
  std::string lines;
  for (const WireCable& cable : cables) {
    const std::size_t packets = delay_capacity(cable.rate_bps, cable.delay_ns) / 64;
    for (const std::string& one : {cable.near_half(), cable.far_half()}) {
      // In us, because tc knows no ns here.
      lines += fmt::format("qdisc add dev {} root handle 1: netem delay {:.3f}us limit {}\n", one,
                           static_cast<double>(cable.delay_ns) / 1e3, packets);
    }
  }
  return lines;
}

Result<WireThere> read_wire() {
  const auto links = read_links();
  if (!links) return tl::unexpected(links.error());
  const auto queues = read_queues();
  if (!queues) return tl::unexpected(queues.error());
  WireThere there;
  std::map<std::string, const Link*> by_name;
  for (const Link& link : *links) by_name[link.name] = &link;
  for (const auto& [name, link] : by_name) {
    if (!name.starts_with("wa")) continue;
    WireCable cable;
    std::istringstream alias(link->alias);
    const auto [rest, error] = std::from_chars(name.data() + 2, name.data() + name.size(), cable.number);
    if (error != std::errc() || rest != name.data() + name.size()) continue;
    if (!(alias >> cable.a >> cable.b >> cable.delay_ns >> cable.rate_bps)) continue;
    cable.mtu = link->mtu;
    const auto far = by_name.find(cable.far_half());
    cable.up = link->up && link->carrier && far != by_name.end() && far->second->up && far->second->carrier;
    there.cables.push_back(cable);
    if (far == by_name.end()) continue;
    // A packet from a leaves by the half towards b.
    const auto add_netem = [&](int index, const std::string& from, const std::string& to) {
      for (const Queue& queue : *queues) {
        if (queue.link != index || queue.kind != "netem") continue;
        there.netem_traffic.push_back({from, to, cable.delay_ns, queue.packets, queue.drops, 0, 0});
      }
    };
    add_netem(far->second->index, cable.a, cable.b);
    add_netem(link->index, cable.b, cable.a);
  }
  std::sort(there.cables.begin(), there.cables.end(),
            [](const WireCable& x, const WireCable& y) { return x.number < y.number; });
  there.netem = !there.cables.empty() && there.netem_traffic.size() == 2 * there.cables.size();
  return there;
}

}  // namespace clustar::bench::fabric
