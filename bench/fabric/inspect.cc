#include "bench/fabric/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "bench/fabric/delay/forwarder.h"
#include "bench/fabric/interface.h"
#include "bench/fabric/namespaces.h"
#include "bench/fabric/netlink.h"
#include "bench/fabric/places.h"
#include "bench/fabric/ports.h"
#include "bench/fabric/router.h"
#include "bench/fabric/topology.h"

namespace clustar::bench::fabric {
namespace {

constexpr std::uint32_t kLineClass = 0x00010001;  // 1:1, HTB's class with the line's rate, and TBF's only class

// The queues of one interface: HTB or TBF with its rate, and the bfifo in it.
struct Line {
  bool shaped = false;
  int leaves = 0;  // of the eight strict classes
  std::uint64_t rate_bps = 0, buffer_bytes = 0;
  Traffic sent;  // by HTB or TBF; a link without it has its own counters
};

Line line_of(const Link& link, const std::vector<Queue>& queues) {
  Line line;
  line.sent = {link.tx_packets, link.tx_bytes, link.tx_drops, 0};
  for (const Queue& queue : queues) {
    if (queue.link != link.index) continue;
    if (queue.kind == "htb" || queue.kind == "tbf") {
      line.shaped = true;
      line.rate_bps = queue.rate_bps;  // HTB's is its class's
      line.sent = {queue.packets, queue.bytes, queue.drops, queue.backlog_bytes};
    }
    if (queue.kind == "bfifo" && queue.parent == kLineClass) line.buffer_bytes = queue.limit_bytes;
    if (queue.kind == "bfifo" && queue.parent >= kLeafClass && queue.parent < kLeafClass + kClasses) ++line.leaves;
  }
  if (!line.shaped) return line;
  const auto classes = read_classes(link.index);
  for (const Queue& one : classes ? *classes : std::vector<Queue>()) {
    if (one.handle == kLineClass && one.kind == "htb") line.rate_bps = one.rate_bps;
  }
  return line;
}

const Link* find_link(const std::vector<Link>& links, const std::string& name) {
  const auto found = std::find_if(links.begin(), links.end(), [&](const Link& link) { return link.name == name; });
  return found == links.end() ? nullptr : &*found;
}

// "port3" leads to h3, "to-leaf0" to leaf0; "" for another name.
std::string peer_of(const std::string& interface) {
  constexpr std::string_view kPort = "port";
  if (interface.starts_with(kPort)) {
    const std::string host = "h" + interface.substr(kPort.size());
    return host_number(host) >= 0 ? host : "";
  }
  const std::string node = interface.starts_with("to-") ? interface.substr(3) : "";
  return check_switch_name(node) ? node : "";
}

// What the routes of one router lead over: the links by name, for each host's address.
using RoutesByHost = std::map<std::string, std::vector<std::string>>;

class Inspector {
 public:
  explicit Inspector(FabricStatus& status) : status_(status) {}

  // In the switch's namespace.
  Result<void> look_at_switch(SwitchStatus& one) {
    const auto links = read_links();
    if (!links) return tl::unexpected(links.error());
    const auto queues = read_queues();
    if (!queues) return tl::unexpected(queues.error());
    const auto programs = read_switch();
    if (!programs) return tl::unexpected(programs.error());
    const bool is_bridge = one.name == kSingleSwitch;
    const Link* bridge = is_bridge ? find_link(*links, kBridge) : nullptr;
    if (is_bridge && (bridge == nullptr || !bridge->up)) problem("the switch has no bridge that is up");
    for (const Link& link : *links) {
      const std::string peer = peer_of(link.name);
      if (peer.empty()) continue;
      SwitchPortStatus port{link.name, peer, link.up && link.carrier, link.mtu, 0, 0, {}, {}, {}, 0};
      if (is_bridge && (bridge == nullptr || link.master != bridge->index)) {
        problem(fmt::format("{}: its port to {} is not part of the bridge", one.name, peer));
      }
      if (!port.up)
        problem(fmt::format("the link {} - {} is down ({} in {})", one.name, peer, link.name, one.net_namespace));
      const Line line = line_of(link, *queues);
      port.rate_bps = line.rate_bps;
      port.buffer_bytes = line.buffer_bytes;
      port.sent = line.sent;
      port.received = {link.rx_packets, link.rx_bytes, 0, 0};
      look_at_program(one, port, line, *programs);
      if (line.shaped && (line.rate_bps == 0 || port.buffer_bytes == 0)) {
        problem(fmt::format("{}: its port to {} has a rate without its queue", one.name, peer));
      }
      merging(fmt::format("{} {}", one.name, link.name), link.name, Merging::kReceiving);
      one.ports.push_back(port);
    }
    std::sort(one.ports.begin(), one.ports.end(),
              [](const auto& a, const auto& b) { return node_rank(a.peer) < node_rank(b.peer); });
    return is_bridge ? Result<void>() : look_at_router(one, *links);
  }

  // From outside: the halves of cables with a delay, and what carries packets across.
  Result<void> look_at_wire(const std::string& wire) {
    WireThere there;
    const auto looked = run_inside(wire, [&]() -> Result<void> {
      auto read = read_wire();
      if (!read) return tl::unexpected(read.error());
      there = std::move(*read);
      return {};
    });
    if (!looked) return looked;
    for (const WireCable& cable : there.cables) {
      delays_[{cable.a, cable.b}] = cable.delay_ns;
      if (!cable.up) problem(fmt::format("the link {} - {} is down where its delay is ({})", cable.a, cable.b, wire));
    }
    if (there.netem) {
      status_.delay = {DelayCarrier::kNetem, 0, there.netem_traffic};
      return {};
    }
    status_.delay = {DelayCarrier::kForwarder, 0, read_forwarder(status_.spec.name, there.cables)};
    for (const Inhabitant& one : inhabitants({wire})) {
      if (one.command == kForwarderCommand) status_.delay.pid = one.pid;
    }
    if (status_.delay.forwarder_is_missing()) {
      problem(
          fmt::format("the delay forwarder ({}) does not run, so links with a delay carry nothing", kForwarderCommand));
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
    merging(fmt::format("host {}", port.host), kHostInterface, Merging::kSending);
    return is_routed() ? look_at_default_route(port.host, link->index) : Result<void>();
  }

  // After the switches, before the hosts: which switch port leads to which host.
  void assign_ports() {
    for (PortStatus& port : status_.ports) {
      const SwitchPortStatus* found = nullptr;
      for (const SwitchStatus& one : status_.switches) {
        for (const SwitchPortStatus& candidate : one.ports) {
          if (candidate.peer != host_name(port.host)) continue;
          if (found != nullptr) problem(fmt::format("two switches have a port to host {}", port.host));
          found = &candidate;
        }
      }
      if (found == nullptr) {
        problem(fmt::format("no switch has a port to host {}", port.host));
        continue;
      }
      port.mtu = found->mtu;
      port.rate_bps = found->rate_bps;
      port.buffer_bytes = found->buffer_bytes;
      port.to_host = found->sent;
      port.from_host = found->received;
      port.program = found->program;
      port.backstop_drops = found->backstop_drops;
    }
  }

  // The spec that these links follow from, in the simplest form; problems where the two ends of a link disagree.
  void read_spec() {
    std::vector<std::string> switches;
    for (const SwitchStatus& one : status_.switches) switches.push_back(one.name);
    std::vector<LinkSpec> links;
    for (const SwitchStatus& one : status_.switches) {
      for (const SwitchPortStatus& port : one.ports) {
        LinkSpec link{port.peer, one.name, port.rate_bps, port.buffer_bytes, port.mtu, 0};
        const auto delay = delays_.find({link.a, link.b});
        if (delay != delays_.end()) link.delay_ns = delay->second;
        if (host_number(port.peer) >= 0 || other_end_agrees(link)) links.push_back(link);
      }
    }
    std::sort(links.begin(), links.end(), [](const LinkSpec& x, const LinkSpec& y) {
      return std::pair(node_rank(x.a), node_rank(x.b)) < std::pair(node_rank(y.a), node_rank(y.b));
    });
    status_.spec = spec_of(status_.spec.name, static_cast<int>(status_.ports.size()), switches, links);
    read_programs();
    if (!status_.problems.empty() || !is_routed()) return;
    const auto whole = check_topology(status_.spec.hosts, switches, links);
    if (!whole) return problem(whole.error().message);
    compare_routes();
  }

  void problem(std::string text) { status_.problems.push_back(std::move(text)); }
  bool is_routed() const { return !status_.switches.empty() && status_.switches.front().name != kSingleSwitch; }

 private:
  // Completes `port` by what the program there says.
  void look_at_program(const SwitchStatus& one, SwitchPortStatus& port, const Line& line,
                       const std::vector<ProgramPort>& programs) {
    const auto own = std::find_if(programs.begin(), programs.end(),
                                  [&](const ProgramPort& there) { return there.interface == port.interface; });
    if (own == programs.end() || !own->attached) {
      if (line.leaves > 0 || own != programs.end()) {
        problem(fmt::format("{}: its port to {} has lost its switch program", one.name, port.peer));
      }
      return;
    }
    port.program = *own;
    if (own->line.rate_bps != line.rate_bps || (line.shaped && line.leaves != kClasses)) {
      problem(fmt::format("{}: its port to {} is shaped otherwise than its switch program knows", one.name, port.peer));
    }
    port.buffer_bytes = own->line.buffer_bytes;
    port.backstop_drops = port.sent.drops;
    port.sent.drops += own->counters.to_host().dropped();
  }

  // After the spec's form is known: its rules, and what keeps the buffers.
  void read_programs() {
    std::string with, without;  // a port of each kind
    bool shaped = false;
    for (const SwitchStatus& one : status_.switches) {
      for (const SwitchPortStatus& port : one.ports) {
        const std::string place = port_place(one.name, port.peer);
        (port.program ? with : without) = place;
        shaped = shaped || port.rate_bps != 0;
        if (port.program && port.program->rules != PortRules()) status_.spec.rules.ports[place] = port.program->rules;
      }
    }
    if (shaped) status_.buffer_kind = with.empty() ? BufferKind::kBfifo : BufferKind::kSwitchProgram;
    if (!with.empty() && !without.empty() && status_.problems.empty()) {
      problem(fmt::format("there is a switch program at port {}, and none at port {}", with, without));
    }
  }

  Result<void> look_at_router(const SwitchStatus& one, const std::vector<Link>& links) {
    for (const std::string& wrong : router_problems()) problem(fmt::format("{}: {}", one.name, wrong));
    const auto routes = read_routes();
    if (!routes) return tl::unexpected(routes.error());
    for (const Route& route : *routes) {
      std::vector<std::string>& names = routes_[one.name][route.destination];
      for (const int index : route.links) {
        for (const Link& link : links) {
          if (link.index == index) names.push_back(link.name);
        }
      }
      std::sort(names.begin(), names.end());
    }
    return {};
  }

  Result<void> look_at_default_route(int host, int link) {
    const auto routes = read_routes();
    if (!routes) return tl::unexpected(routes.error());
    const bool there = std::any_of(routes->begin(), routes->end(), [&](const Route& route) {
      return route.destination.empty() && route.links == std::vector<int>{link};
    });
    if (!there) problem(fmt::format("host {} has no default route over {}", host, kHostInterface));
    return {};
  }

  // Of a link between two switches, once, at the end nearer to the core.
  bool other_end_agrees(const LinkSpec& link) {
    if (node_rank(link.a) > node_rank(link.b)) return false;
    for (const SwitchStatus& one : status_.switches) {
      for (const SwitchPortStatus& port : one.ports) {
        if (one.name != link.a || port.peer != link.b) continue;
        if (port.rate_bps != link.rate_bps || port.buffer_bytes != link.buffer_bytes || port.mtu != link.mtu) {
          problem(fmt::format("the two ends of the link {} - {} differ in rate, buffer or MTU", link.a, link.b));
        }
        return true;
      }
    }
    problem(fmt::format("{} has a port to {}, which has none back", link.b, link.a));
    return true;
  }

  void compare_routes() {
    const Topology topology = topology_of(status_.spec);
    const auto wanted = next_interfaces(topology);
    for (std::size_t node = static_cast<std::size_t>(topology.hosts); node < topology.nodes.size(); ++node) {
      RoutesByHost& there = routes_[topology.nodes[node].name];
      for (int host = 0; host < topology.hosts; ++host) {
        const auto& over = wanted[node][static_cast<std::size_t>(host)];
        const auto& found = there[host_address(host)];
        if (over == found) continue;
        problem(fmt::format("{}: the route to h{} goes over [{}]; it should go over [{}]", topology.nodes[node].name,
                            host, fmt::join(found, ", "), fmt::join(over, ", ")));
      }
    }
  }

  void merging(const std::string& where, const std::string& interface, Merging direction) {
    const auto on = merging_features(interface, direction);
    if (!on) problem(on.error().message);
    if (on && !on->empty()) problem(fmt::format("{}: {} on, so super-packets pass", where, fmt::join(*on, ", ")));
  }

  FabricStatus& status_;
  std::map<std::string, RoutesByHost> routes_;                           // by switch
  std::map<std::pair<std::string, std::string>, std::uint64_t> delays_;  // by the two nodes of a link
};

}  // namespace

const char* to_string(BufferKind kind) {
  switch (kind) {
    case BufferKind::kNone: return "none";
    case BufferKind::kBfifo: return "bfifo";
    case BufferKind::kSwitchProgram: return "switch program, virtual queue";
  }
  return "?";
}

Result<FabricStatus> inspect(const std::string& fabric) {
  FabricStatus status;
  status.spec.name = fabric;
  Inspector inspector(status);
  for (const std::string& name : namespaces_of(fabric)) {
    status.exists = true;
    const NamespaceName parsed = *parse_namespace(name);
    if (!is_namespace(name)) {
      inspector.problem(fmt::format("{} is only a file, not a namespace", name));
    } else if (parsed.is_switch()) {
      status.switches.push_back({parsed.node, name, {}});
    } else if (parsed.host < 0) {
      if (const auto done = inspector.look_at_wire(name); !done) return tl::unexpected(done.error());
    } else {
      status.ports.push_back({parsed.host, name, {}, 0, 0, 0, 0, {}, {}, {}, 0});
    }
  }
  if (!status.exists) return status;
  if (status.switches.empty()) inspector.problem("there is no switch");
  for (SwitchStatus& one : status.switches) {
    const auto done = run_inside(one.net_namespace, [&] { return inspector.look_at_switch(one); });
    if (!done) return tl::unexpected(done.error());
  }
  inspector.assign_ports();
  for (PortStatus& port : status.ports) {
    const auto done = run_inside(port.host_namespace, [&] { return inspector.look_at_host(port); });
    if (!done) return tl::unexpected(done.error());
  }
  if (status.ports.empty()) inspector.problem("there are no hosts");
  if (!status.ports.empty() && status.ports.back().host != static_cast<int>(status.ports.size()) - 1) {
    inspector.problem(fmt::format("a host below {} is missing", status.ports.back().host));
  }
  inspector.read_spec();
  return status;
}

}  // namespace clustar::bench::fabric
