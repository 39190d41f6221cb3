// Which nodes a fabric has and how they are linked, as it follows from a FabricSpec. Values only; touches no kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

enum class NodeKind { kHost, kBridgeSwitch, kRouter };
const char* to_string(NodeKind kind);

struct Node {
  std::string name;  // h0, sw, leaf0
  NodeKind kind = NodeKind::kHost;
  int host = -1;  // its number, of a host
  std::string net_namespace;
  std::string address;  // IPv4; "" for a bridge
};

// One end of a link, and the direction that leaves it.
struct LinkEnd {
  int node = 0;  // index in Topology::nodes
  std::string interface;
  std::string mac;                // "": the kernel's choice
  std::uint64_t rate_bps = 0;     // 0: not shaped
  std::uint64_t queue_bytes = 0;  // in front of the line, 0 without a rate
};

struct TopologyLink {
  std::array<LinkEnd, 2> ends;  // of lower and of higher node index, so that a host is always the first
  int mtu = 1500;
  std::uint64_t delay_ns = 0;  // one way
};

struct Topology {
  std::string fabric;
  int hosts = 0;
  std::vector<Node> nodes;          // hosts by number, then switches from the edge to the core
  std::vector<TopologyLink> links;  // of the hosts in their order, then those between switches

  bool is_routed() const;  // its switches are routers
  bool has_delay() const;
  int switches() const { return static_cast<int>(nodes.size()) - hosts; }
};

// A port of a switch, and the line that leaves it.
struct SwitchPort {
  std::string node;  // the switch: sw, leaf0
  std::string switch_namespace;
  std::string interface;
  std::string peer;                // the node at the other end: h0, leaf0
  std::uint64_t rate_bps = 0;      // 0: not shaped
  std::uint64_t buffer_bytes = 0;  // 0 without a rate
  int mtu = 1500;
};

// `spec` is checked().
Topology topology_of(const FabricSpec& spec);
// Every link of the fabric, whatever the spec's form, in canonical order.
std::vector<LinkSpec> links_of(const FabricSpec& spec);
std::vector<std::string> switches_of(const FabricSpec& spec);
std::vector<SwitchPort> switch_ports(const Topology& topology);

// The simplest spec that has just these links, which are in canonical order; links of its own when no form fits.
FabricSpec spec_of(const std::string& fabric, int hosts, const std::vector<std::string>& switches,
                   const std::vector<LinkSpec>& links);

// kInvalidArgument, naming the node or link and what is allowed, unless every host has one link to a switch and
// reaches all others, every switch is on a shortest path, and a bridge is the only switch. Links have a before b.
Result<void> check_topology(int hosts, const std::vector<std::string>& switches, const std::vector<LinkSpec>& links);

// The first thing that `there` lacks, has too much or has otherwise: "spine1 is missing". Empty: the same fabric.
std::string difference(const FabricSpec& there, const FabricSpec& wanted);

}  // namespace clustar::bench::fabric
