#include "bench/fabric/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/fabric/interface.h"
#include "bench/fabric/next_hops.h"

namespace clustar::bench::fabric {
namespace {

// Without these there are no several paths. conf/default is for the links to come.
constexpr std::pair<const char*, const char*> kSettings[] = {
    {"ip_forward", "1"},
    {"fib_multipath_hash_policy", "1"},
    {"conf/all/rp_filter", "0"},
    {"conf/default/rp_filter", "0"},
    {"conf/all/ignore_routes_with_linkdown", "1"},
    {"conf/default/ignore_routes_with_linkdown", "1"},
    {"conf/all/send_redirects", "0"},
    {"conf/default/send_redirects", "0"},
};

Graph graph_of(const Topology& topology) {
  Graph graph;
  for (const Node& node : topology.nodes) graph.forwards.push_back(node.kind != NodeKind::kHost);
  for (const TopologyLink& link : topology.links) graph.edges.push_back({link.ends[0].node, link.ends[1].node});
  return graph;
}

// The end of a link at the node, and the one across.
std::pair<const LinkEnd*, const LinkEnd*> ends_at(const TopologyLink& link, int node) {
  const std::size_t side = link.ends[0].node == node ? 0 : 1;
  return {&link.ends[side], &link.ends[1 - side]};
}

std::string via(const Topology& topology, const TopologyLink& link, int node) {
  const auto [own, peer] = ends_at(link, node);
  return fmt::format("via {} dev {} onlink", topology.nodes[static_cast<std::size_t>(peer->node)].address,
                     own->interface);
}

}  // namespace

Result<void> make_router(int index) {
  for (const auto& [name, value] : kSettings) {
    if (!write_ipv4_setting(name, value)) {
      return fail(
          ErrorCode::kUnavailable,
          fmt::format("cannot set net.ipv4.{} = {}: needs a kernel with CONFIG_IP_ROUTE_MULTIPATH and a writable "
                      "/proc/sys; in a container, start it with --privileged",
                      name, value));
    }
  }
  // Another seed for each switch: with one for all, a second tier would see only flows that hash alike.
  write_ipv4_setting("fib_multipath_hash_seed", std::to_string(0x636c7573U + static_cast<unsigned>(index)));
  return {};
}

std::vector<std::string> router_problems() {
  std::vector<std::string> problems;
  for (const auto& [name, value] : kSettings) {
    const std::string there = read_ipv4_setting(name);
    if (there != value) {
      problems.push_back(fmt::format("net.ipv4.{} is '{}' instead of {}", name, there, value));
    }
  }
  return problems;
}

std::vector<std::string> route_lines(const Topology& topology) {
  std::vector<std::string> lines;
  for (const Node& node : topology.nodes) {
    const bool is_host = node.kind == NodeKind::kHost;
    lines.push_back(fmt::format("addr add {}/32 dev {}\n", node.address, is_host ? kHostInterface : "lo"));
  }
  for (const TopologyLink& link : topology.links) {
    for (std::size_t side = 0; side < 2; ++side) {
      const LinkEnd& own = link.ends[side];
      const LinkEnd& peer = link.ends[1 - side];
      lines[static_cast<std::size_t>(own.node)] +=
          fmt::format("neigh replace {1} lladdr {2} dev {0} nud permanent\n", own.interface,
                      topology.nodes[static_cast<std::size_t>(peer.node)].address, peer.mac);
    }
  }
  const Graph graph = graph_of(topology);
  for (int host = 0; host < topology.hosts; ++host) {
    const auto hops = next_hops(graph, host);
    for (int node = topology.hosts; node < static_cast<int>(topology.nodes.size()); ++node) {
      const auto& edges = hops[static_cast<std::size_t>(node)];
      std::string& text = lines[static_cast<std::size_t>(node)];
      if (edges.empty()) continue;
      const TopologyLink& first = topology.links[static_cast<std::size_t>(edges.front())];
      const int across = ends_at(first, node).second->node;
      text += fmt::format("route add {}/32", host_address(host));
      if (across == host) {
        text += fmt::format(" dev {}\n", ends_at(first, node).first->interface);
        continue;
      }
      for (const int edge : edges) {
        text += (edges.size() > 1 ? " nexthop " : " ") +
                via(topology, topology.links[static_cast<std::size_t>(edge)], node);
      }
      text += "\n";
    }
  }
  for (int host = 0; host < topology.hosts; ++host) {
    const std::size_t node = static_cast<std::size_t>(host);
    lines[node] += fmt::format("route add default {}\n", via(topology, topology.links[node], host));
  }
  return lines;
}

std::vector<std::vector<std::vector<std::string>>> next_interfaces(const Topology& topology) {
  const Graph graph = graph_of(topology);
  std::vector<std::vector<std::vector<std::string>>> interfaces(
      topology.nodes.size(), std::vector<std::vector<std::string>>(static_cast<std::size_t>(topology.hosts)));
  for (int host = 0; host < topology.hosts; ++host) {
    const auto hops = next_hops(graph, host);
    for (std::size_t node = 0; node < hops.size(); ++node) {
      auto& list = interfaces[node][static_cast<std::size_t>(host)];
      for (const int edge : hops[node]) {
        const TopologyLink& link = topology.links[static_cast<std::size_t>(edge)];
        list.push_back(ends_at(link, static_cast<int>(node)).first->interface);
      }
      std::sort(list.begin(), list.end());
    }
  }
  return interfaces;
}

}  // namespace clustar::bench::fabric
