#include "bench/fabric/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "bench/fabric/delay/forwarder.h"
#include "bench/fabric/delay/wire.h"
#include "bench/fabric/interface.h"
#include "bench/fabric/namespaces.h"
#include "bench/fabric/netlink.h"
#include "bench/fabric/ports.h"
#include "bench/fabric/router.h"
#include "bench/fabric/topology.h"

namespace clustar::bench::fabric {
namespace {

constexpr auto kAwakeBound = std::chrono::seconds(20);
constexpr const char* kNeedsNamespaces =
    "needs network namespaces (CONFIG_NET_NS) and a writable /run/netns; in a container, start it with --privileged";
constexpr const char* kNeedsLinks =
    "needs the kernel modules veth and bridge (CONFIG_VETH, CONFIG_BRIDGE): modprobe -a veth bridge";
constexpr const char* kNeedsNetem =
    "a delay by netem needs a kernel with CONFIG_NET_SCH_NETEM (modprobe sch_netem); elsewhere: --delay-by forwarder, "
    "or "
    "auto";
constexpr const char* kNeedsRoutes = "needs multipath routes (CONFIG_IP_ROUTE_MULTIPATH)";

std::string namespace_lines(const Topology& topology) {
  std::string lines;
  // Switches first: where there are only hosts, it is clear that the fabric is half-made.
  for (std::size_t i = static_cast<std::size_t>(topology.hosts); i < topology.nodes.size(); ++i) {
    lines += fmt::format("netns add {}\n", topology.nodes[i].net_namespace);
  }
  for (int host = 0; host < topology.hosts; ++host) {
    lines += fmt::format("netns add {}\n", host_namespace(topology.fabric, host));
  }
  if (topology.has_delay()) lines += fmt::format("netns add {}\n", wire_namespace(topology.fabric));
  return lines;
}

Result<void> each_node(const Topology& topology, const std::function<Result<void>(int)>& body) {
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    const auto done = run_inside(topology.nodes[node].net_namespace, [&] { return body(static_cast<int>(node)); });
    if (!done) return done;
  }
  return {};
}

const Node& node_at(const Topology& topology, int node) { return topology.nodes[static_cast<std::size_t>(node)]; }

// "port0 mtu 1500 address 02:...", as both ends of `ip link add ... type veth peer name ...` begin.
std::string end_words(const LinkEnd& end, int mtu) {
  return fmt::format("{} mtu {}{}", end.interface, mtu, end.mac.empty() ? "" : " address " + end.mac);
}

// For `ip -batch` in a switch's namespace: the links whose second end is there, and a bridge around them.
std::string cable_lines(const Topology& topology, int node) {
  const bool bridge = node_at(topology, node).kind == NodeKind::kBridgeSwitch;
  std::string lines;
  if (bridge) {
    int mtu = 0;
    for (const TopologyLink& link : topology.links) mtu = std::max(mtu, link.mtu);
    lines += fmt::format("link add {} mtu {} type bridge mcast_snooping 0\n", kBridge, mtu);
  }
  for (const TopologyLink& link : topology.links) {
    if (link.ends[1].node != node) continue;
    const std::string own = end_words(link.ends[1], link.mtu);
    if (link.delay_ns != 0) {
      const WireCable cable{static_cast<int>(&link - topology.links.data()), {}, {}, 0, 0, 0, false};
      lines += fmt::format("link add {} type veth peer name {} mtu {} netns {}\n", own, cable.far_half(), link.mtu,
                           wire_namespace(topology.fabric));
    } else {
      lines += fmt::format("link add {} type veth peer name {} netns {}\n", own, end_words(link.ends[0], link.mtu),
                           node_at(topology, link.ends[0].node).net_namespace);
    }
    if (bridge) lines += fmt::format("link set {} master {} up\n", link.ends[1].interface, kBridge);
  }
  return lines + (bridge ? fmt::format("link set {} up\n", kBridge) : "");
}

// The halves towards the first ends, and netem across where the kernel has it. The forwarder comes last of all.
Result<void> join_halves(const Topology& topology, DelayBy by, const Tools& tools) {
  const std::string wire = wire_namespace(topology.fabric);
  const auto cables = wire_cables(topology);
  if (const auto done = tools.ip_batch(wire, wire_lines(topology), kNeedsLinks); !done) return done;
  const auto per_packet = run_inside(wire, [&] {
    Result<void> done;
    for (const WireCable& cable : cables) {
      if (done) done = forbid_merging(cable.near_half(), Merging::kReceiving);
      if (done) done = forbid_merging(cable.far_half(), Merging::kReceiving);
    }
    return done;
  });
  if (!per_packet || by == DelayBy::kForwarder) return per_packet;
  const auto trial = tools.tc_batch(wire, netem_trial_lines(), kNeedsNetem);
  if (!trial && by == DelayBy::kNetem) return fail(ErrorCode::kUnavailable, trial.error().message);
  if (!trial) return {};
  if (const auto done = tools.ip_batch(wire, netem_bridge_lines(cables), kNeedsLinks); !done) return done;
  return tools.tc_batch(wire, netem_lines(cables), kNeedsQueues);
}

// Where no netem was to be had.
Result<void> carry_delay(const Topology& topology) {
  bool netem = false;
  const auto looked = run_inside(wire_namespace(topology.fabric), [&]() -> Result<void> {
    const auto there = read_wire();
    if (!there) return tl::unexpected(there.error());
    netem = there->netem;
    return {};
  });
  if (!looked || netem) return looked;
  return start_forwarder(topology.fabric, wire_cables(topology));
}

Result<void> lay_cables(const Topology& topology, DelayBy by, const Tools& tools) {
  for (int node = topology.hosts; node < static_cast<int>(topology.nodes.size()); ++node) {
    const std::string lines = cable_lines(topology, node);
    if (lines.empty()) continue;
    const auto done = tools.ip_batch(node_at(topology, node).net_namespace, lines, kNeedsLinks);
    if (!done) return done;
  }
  return topology.has_delay() ? join_halves(topology, by, tools) : Result<void>();
}

// Nothing may merge packets on the way. Hosts around a bridge get their address here, without a tool. All links are up
// before the first route: the kernel takes a route over a link without carrier for dead, and for up to a second.
Result<void> set_up_node(const Topology& topology, int node) {
  const bool is_host = node < topology.hosts;
  for (const TopologyLink& link : topology.links) {
    for (const LinkEnd& end : link.ends) {
      if (end.node != node) continue;
      const auto done = forbid_merging(end.interface, is_host ? Merging::kSending : Merging::kReceiving);
      if (!done) return done;
      if (!topology.is_routed()) continue;
      if (const auto up = set_up(end.interface); !up) return up;
    }
  }
  if (node_at(topology, node).kind == NodeKind::kBridgeSwitch) return {};
  if (const auto done = set_up("lo"); !done || topology.is_routed()) return done;
  if (const auto done = set_address(kHostInterface, host_address(node), kPrefixLength); !done) return done;
  return set_up(kHostInterface);
}

// In the calling thread's namespace: the first link that has its carrier and does not pass packets yet; "" without.
Result<std::string> waking_link() {
  const auto links = read_links();
  if (!links) return tl::unexpected(links.error());
  for (const Link& link : *links) {
    if (link.up && link.carrier && !link.running) return link.name;
  }
  return std::string();
}

// The kernel acts on a new carrier by a worker of its own, which is late on busy cores; a host that sends at once would
// lose the first packets of a fabric that is up.
Result<void> await_links(const Topology& topology, const HeldSignals& signals) {
  std::vector<std::string> names;
  for (const Node& node : topology.nodes) names.push_back(node.net_namespace);
  if (topology.has_delay()) names.push_back(wire_namespace(topology.fabric));
  const auto until = std::chrono::steady_clock::now() + kAwakeBound;
  for (const std::string& name : names) {
    const auto awake = run_inside(name, [&]() -> Result<void> {
      for (auto link = waking_link();; link = waking_link()) {
        if (!link) return tl::unexpected(link.error());
        if (link->empty()) return {};
        if (signals.interrupted()) return fail(ErrorCode::kSystem, "interrupted");
        if (std::chrono::steady_clock::now() > until) {
          return fail(ErrorCode::kSystem,
                      fmt::format("{} in {} has a carrier and passes nothing; the machine may be too "
                                  "busy: try again",
                                  *link, name));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    if (!awake) return awake;
  }
  return {};
}

Result<void> lay_routes(const Topology& topology, const Tools& tools) {
  const auto lines = route_lines(topology);
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    const auto done = tools.ip_batch(topology.nodes[node].net_namespace, lines[node], kNeedsRoutes);
    if (!done) return done;
  }
  return {};
}

}  // namespace

Result<void> build(const FabricSpec& spec, const Tools& tools, const HeldSignals& signals, std::string& note) {
  const Topology topology = topology_of(spec);
  if (const auto done = tools.ip_batch("", namespace_lines(topology), kNeedsNamespaces); !done) return done;
  const auto prepared = each_node(topology, [&](int node) {
    keep_new_interfaces_silent();
    return node_at(topology, node).kind == NodeKind::kRouter ? make_router(node - topology.hosts) : Result<void>();
  });
  if (!prepared) return prepared;
  if (topology.has_delay()) {
    const auto silent = run_inside(wire_namespace(spec.name), [] {
      keep_new_interfaces_silent();
      return Result<void>();
    });
    if (!silent) return silent;
  }
  if (const auto done = lay_cables(topology, spec.delay_by, tools); !done) return done;
  if (const auto done = each_node(topology, [&](int node) { return set_up_node(topology, node); }); !done) return done;
  if (topology.is_routed()) {
    if (const auto done = lay_routes(topology, tools); !done) return done;
  }
  if (const auto done = equip_ports(spec, topology, tools, note); !done) return done;
  if (const auto done = await_links(topology, signals); !done || !topology.has_delay()) return done;
  return carry_delay(topology);
}

}  // namespace clustar::bench::fabric
