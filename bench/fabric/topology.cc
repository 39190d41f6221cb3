#include "bench/fabric/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/fabric/next_hops.h"
#include "bench/fabric/places.h"

namespace clustar::bench::fabric {
namespace {

tl::unexpected<Error> wrong(const std::string& message) { return fail(ErrorCode::kInvalidArgument, message); }

std::string named(const char* word, int number) { return fmt::format("{}{}", word, number); }

// Blocks of equal size, the first ones larger by one when it does not come out even.
int leaf_of(int host, const FabricSpec& spec) {
  return static_cast<int>(static_cast<long>(host) * spec.leaves / spec.hosts);
}

std::vector<std::string> node_names(int hosts, const std::vector<std::string>& switches) {
  std::vector<std::string> names;
  for (int host = 0; host < hosts; ++host) names.push_back(host_name(host));
  names.insert(names.end(), switches.begin(), switches.end());
  return names;
}

LinkEnd make_end(const Node& node, int index, const Node& peer, const LinkSpec& link, std::size_t number, int side) {
  LinkEnd end;
  end.node = index;
  end.rate_bps = link.rate_bps;
  if (node.kind == NodeKind::kHost) {
    end.interface = kHostInterface;
    end.mac = host_mac(node.host);
    end.queue_bytes = link.rate_bps == 0 ? 0 : kHostQueueBytes;
    return end;
  }
  end.interface = peer.kind == NodeKind::kHost ? port_name(peer.host) : port_name(peer.name);
  end.queue_bytes = link.buffer_bytes;
  // Fixed, since routers know their neighbours' addresses without asking. A bridge's ports are nobody's neighbour.
  if (node.kind == NodeKind::kRouter) {
    end.mac = fmt::format("02:59:00:{:02x}:{:02x}:{:02x}", number >> 8 & 0xff, number & 0xff, side);
  }
  return end;
}

Result<void> check_nodes(const std::vector<std::string>& switches) {
  if (switches.empty()) return wrong("there is no switch; allowed: 1 to 250");
  if (switches.size() > static_cast<std::size_t>(kMaxSwitches)) {
    return wrong(fmt::format("{} switches; allowed: 1 to {}", switches.size(), kMaxSwitches));
  }
  std::set<std::string> seen;
  for (const std::string& name : switches) {
    if (const auto ok = check_switch_name(name); !ok) return ok;
    if (!seen.insert(name).second) return wrong(fmt::format("there are two switches '{}'; each name once", name));
  }
  if (seen.count(kSingleSwitch) > 0 && seen.size() > 1) {
    return wrong(
        fmt::format("'{}' is a bridge and must be the only switch (bridges could form loops); name several "
                    "leaf0, spine0, ...: those are routers",
                    kSingleSwitch));
  }
  return {};
}

Result<void> check_ends(int hosts, const std::vector<std::string>& names, const std::vector<LinkSpec>& links) {
  const std::set<std::string> known(names.begin(), names.end());
  std::set<std::pair<std::string, std::string>> pairs;
  std::vector<int> links_of_host(static_cast<std::size_t>(hosts));
  for (const LinkSpec& link : links) {
    const std::string where = fmt::format("link {} - {}: ", link.a, link.b);
    for (const std::string& end : {link.a, link.b}) {
      if (known.count(end) == 0) {
        return wrong(
            fmt::format("{}there is no '{}'; allowed: h0 to h{} and the switches of the list", where, end, hosts - 1));
      }
    }
    if (link.a == link.b) return wrong(where + "both ends are the same; a link joins two nodes");
    if (host_number(link.b) >= 0) return wrong(where + "two hosts; a host is linked to a switch");
    if (!pairs.insert({link.a, link.b}).second) {
      return wrong(where + "is there twice; one link between two nodes is allowed: add up their rates");
    }
    const int host = host_number(link.a);
    if (host >= 0 && ++links_of_host[static_cast<std::size_t>(host)] > 1) {
      return wrong(where + "this host has a link already; allowed: one");
    }
  }
  for (int host = 0; host < hosts; ++host) {
    if (links_of_host[static_cast<std::size_t>(host)] == 0) {
      return wrong(fmt::format("host h{} has no link; give it one to a switch", host));
    }
  }
  return {};
}

std::string differs(const LinkSpec& there, const LinkSpec& wanted) {
  const std::string where = fmt::format("link {} - {}: ", there.a, there.b);
  if (there.rate_bps != wanted.rate_bps) {
    return fmt::format("{}{} instead of {}", where, rate_text(there.rate_bps), rate_text(wanted.rate_bps));
  }
  if (there.buffer_bytes != wanted.buffer_bytes) {
    return fmt::format("{}a buffer of {} B instead of {}", where, there.buffer_bytes, wanted.buffer_bytes);
  }
  if (there.mtu != wanted.mtu) return fmt::format("{}MTU {} instead of {}", where, there.mtu, wanted.mtu);
  if (there.delay_ns != wanted.delay_ns) {
    return fmt::format("{}a delay of {} instead of {}", where, delay_text(there.delay_ns), delay_text(wanted.delay_ns));
  }
  return {};
}

std::string rules_differ(const FabricSpec& there, const FabricSpec& wanted) {
  const auto text = [](const PortRules& rules) { return rules == PortRules() ? "no rules" : describe(rules); };
  for (const SwitchPort& port : switch_ports(topology_of(wanted))) {
    const PortRules& has = there.rules.of(port_place(port));
    const PortRules& needs = wanted.rules.of(port_place(port));
    if (has != needs) return fmt::format("port {}: {} instead of {}", port_place(port), text(has), text(needs));
  }
  return {};
}

}  // namespace

const char* to_string(NodeKind kind) {
  switch (kind) {
    case NodeKind::kHost: return "host";
    case NodeKind::kBridgeSwitch: return "bridge";
    case NodeKind::kRouter: return "router";
  }
  return "?";
}

bool Topology::is_routed() const { return !nodes.empty() && nodes.back().kind == NodeKind::kRouter; }

bool Topology::has_delay() const {
  return std::any_of(links.begin(), links.end(), [](const TopologyLink& link) { return link.delay_ns != 0; });
}

std::vector<std::string> switches_of(const FabricSpec& spec) {
  if (!spec.links.empty()) return spec.switches;
  if (spec.spines == 0) return {kSingleSwitch};
  std::vector<std::string> names;
  for (int leaf = 0; leaf < spec.leaves; ++leaf) names.push_back(named("leaf", leaf));
  for (int spine = 0; spine < spec.spines; ++spine) names.push_back(named("spine", spine));
  return names;
}

std::vector<LinkSpec> links_of(const FabricSpec& spec) {
  if (!spec.links.empty()) return spec.links;
  std::vector<LinkSpec> links;
  for (int host = 0; host < spec.hosts; ++host) {
    const std::string to = spec.spines == 0 ? kSingleSwitch : named("leaf", leaf_of(host, spec));
    links.push_back({host_name(host), to, spec.rate_bps, spec.buffer_bytes, spec.mtu, spec.delay_ns});
  }
  for (int leaf = 0; spec.spines != 0 && leaf < spec.leaves; ++leaf) {
    for (int spine = 0; spine < spec.spines; ++spine) {
      links.push_back({named("leaf", leaf), named("spine", spine), spec.uplink_rate_bps, spec.uplink_buffer_bytes,
                       spec.mtu, spec.delay_ns});
    }
  }
  return links;
}

Topology topology_of(const FabricSpec& spec) {
  Topology topology;
  topology.fabric = spec.name;
  topology.hosts = spec.hosts;
  for (int host = 0; host < spec.hosts; ++host) {
    topology.nodes.push_back(
        {host_name(host), NodeKind::kHost, host, host_namespace(spec.name, host), host_address(host)});
  }
  int number = 0;
  for (const std::string& name : switches_of(spec)) {
    const NodeKind kind = name == kSingleSwitch ? NodeKind::kBridgeSwitch : NodeKind::kRouter;
    topology.nodes.push_back(
        {name, kind, -1, switch_namespace(spec.name, name), kind == NodeKind::kRouter ? switch_address(number) : ""});
    ++number;
  }
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) index[topology.nodes[i].name] = static_cast<int>(i);
  for (const LinkSpec& link : links_of(spec)) {
    const int a = index.at(link.a);
    const int b = index.at(link.b);
    const Node& from = topology.nodes[static_cast<std::size_t>(a)];
    const Node& to = topology.nodes[static_cast<std::size_t>(b)];
    const std::size_t n = topology.links.size();
    topology.links.push_back(
        {{make_end(from, a, to, link, n, 0), make_end(to, b, from, link, n, 1)}, link.mtu, link.delay_ns});
  }
  return topology;
}

std::vector<SwitchPort> switch_ports(const Topology& topology) {
  std::vector<SwitchPort> ports;
  for (std::size_t node = static_cast<std::size_t>(topology.hosts); node < topology.nodes.size(); ++node) {
    for (const TopologyLink& link : topology.links) {
      for (std::size_t side = 0; side < 2; ++side) {
        const LinkEnd& end = link.ends[side];
        if (end.node != static_cast<int>(node)) continue;
        const Node& peer = topology.nodes[static_cast<std::size_t>(link.ends[1 - side].node)];
        ports.push_back({topology.nodes[node].name, topology.nodes[node].net_namespace, end.interface, peer.name,
                         end.rate_bps, end.queue_bytes, link.mtu});
      }
    }
  }
  return ports;
}

FabricSpec spec_of(const std::string& fabric, int hosts, const std::vector<std::string>& switches,
                   const std::vector<LinkSpec>& links) {
  FabricSpec spec;
  spec.name = fabric;
  spec.hosts = hosts;
  if (!links.empty()) {
    const LinkSpec& first = links.front();
    spec.rate_bps = first.rate_bps;
    spec.buffer_bytes = first.buffer_bytes;
    spec.mtu = first.mtu;
    spec.delay_ns = first.delay_ns;
  }
  const auto count = [&](const char* word) {
    return std::count_if(switches.begin(), switches.end(), [&](const auto& name) { return name.starts_with(word); });
  };
  FabricSpec tiers = spec;
  tiers.leaves = static_cast<int>(count("leaf"));
  tiers.spines = static_cast<int>(count("spine"));
  if (!links.empty()) {
    tiers.uplink_rate_bps = links.back().rate_bps;
    tiers.uplink_buffer_bytes = links.back().buffer_bytes;
  }
  for (const FabricSpec& form : {spec, tiers}) {
    if (switches_of(form) == switches && links_of(form) == links) return form;
  }
  spec.switches = switches;
  spec.links = links;
  return spec;
}

Result<void> check_topology(int hosts, const std::vector<std::string>& switches, const std::vector<LinkSpec>& links) {
  if (const auto ok = check_nodes(switches); !ok) return ok;
  const std::vector<std::string> names = node_names(hosts, switches);
  if (const auto ok = check_ends(hosts, names, links); !ok) return ok;
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < names.size(); ++i) index[names[i]] = static_cast<int>(i);
  Graph graph;
  for (std::size_t i = 0; i < names.size(); ++i) graph.forwards.push_back(i >= static_cast<std::size_t>(hosts));
  for (const LinkSpec& link : links) graph.edges.push_back({index[link.a], index[link.b]});
  std::vector<bool> used(names.size());
  for (int to = 0; to < hosts; ++to) {
    const auto hops = next_hops(graph, to);
    for (int from = 0; from < hosts; ++from) {
      if (from != to && hops[static_cast<std::size_t>(from)].empty()) {
        return wrong(fmt::format("h{} cannot reach h{}; link their switches", from, to));
      }
    }
    // From every host along all shortest paths; nodes are marked on their way.
    std::vector<int> waiting;
    std::vector<bool> reached(names.size());
    for (int from = 0; from < hosts; ++from) waiting.push_back(from);
    while (!waiting.empty()) {
      const int node = waiting.back();
      waiting.pop_back();
      if (node == to || reached[static_cast<std::size_t>(node)]) continue;
      reached[static_cast<std::size_t>(node)] = used[static_cast<std::size_t>(node)] = true;
      for (const int edge : hops[static_cast<std::size_t>(node)]) {
        const Edge& one = graph.edges[static_cast<std::size_t>(edge)];
        waiting.push_back(one.a == node ? one.b : one.a);
      }
    }
  }
  for (std::size_t i = static_cast<std::size_t>(hosts); i < names.size(); ++i) {
    if (!used[i]) {
      return wrong(
          fmt::format("switch '{}' is on no shortest path between two hosts, so nothing would ever pass it; "
                      "remove it, or link it otherwise",
                      names[i]));
    }
  }
  return {};
}

std::string difference(const FabricSpec& there, const FabricSpec& wanted) {
  const auto has = node_names(there.hosts, switches_of(there));
  const auto needs = node_names(wanted.hosts, switches_of(wanted));
  const auto lacks = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) == list.end();
  };
  for (const std::string& name : needs) {
    if (lacks(has, name)) return fmt::format("{} is missing", name);
  }
  for (const std::string& name : has) {
    if (lacks(needs, name)) return fmt::format("{} is too much", name);
  }
  std::map<std::pair<std::string, std::string>, LinkSpec> found;
  for (const LinkSpec& link : links_of(there)) found[{link.a, link.b}] = link;
  for (const LinkSpec& link : links_of(wanted)) {
    const auto one = found.find({link.a, link.b});
    if (one == found.end()) return fmt::format("link {} - {} is missing", link.a, link.b);
    if (std::string text = differs(one->second, link); !text.empty()) return text;
    found.erase(one);
  }
  if (found.empty()) return rules_differ(there, wanted);
  return fmt::format("link {} - {} is too much", found.begin()->first.first, found.begin()->first.second);
}

}  // namespace clustar::bench::fabric
