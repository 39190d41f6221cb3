#include "bench/fabric/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace clustar::bench::fabric {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_at(const SwitchPort& port, const std::string& place) {
  if (place.empty() || place == port_place(port)) return true;
  if (place == port.node || place == port.peer || place == port.node + ":" + port.peer) return true;
  return place == port.node + "-" + port.peer || place == port.peer + "-" + port.node;
}

tl::unexpected<Error> no_such_place(const Topology& topology, const std::string& place) {
  std::string links;
  if (topology.is_routed()) {
    const SwitchPort last = switch_ports(topology).back();
    links = fmt::format("; a link, as {0}-{1}; one of its ports, as {0}:{1}", last.peer, last.node);
  }
  std::vector<std::string> switches;
  for (std::size_t i = static_cast<std::size_t>(topology.hosts); i < topology.nodes.size(); ++i) {
    switches.push_back(topology.nodes[i].name);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no '{}'; allowed: a host, h0 to h{}; a switch: {}{}; or nothing, for every port",
                          place, topology.hosts - 1, fmt::join(switches, ", "), links));
}

}  // namespace

std::string port_place(const std::string& node, const std::string& peer) {
  return host_number(peer) >= 0 ? peer : node + ":" + peer;
}

std::string port_place(const SwitchPort& port) { return port_place(port.node, port.peer); }

Result<std::vector<SwitchPort>> ports_at(const Topology& topology, const std::string& place) {
  const std::string name = is_number(place) ? "h" + place : place;
  std::vector<SwitchPort> ports = switch_ports(topology);
  std::erase_if(ports, [&](const SwitchPort& port) { return !is_at(port, name); });
  if (ports.empty()) return no_such_place(topology, place);
  return ports;
}

Result<void> edit_rules(FabricSpec& spec, const std::string& place,
                        const std::function<Result<void>(PortRules&)>& edit) {
  const auto ports = ports_at(topology_of(spec), place);
  if (!ports) return tl::unexpected(ports.error());
  for (const SwitchPort& port : *ports) {
    PortRules rules = spec.rules.of(port_place(port));
    if (const auto done = edit(rules); !done) return done;
    spec.rules.ports[port_place(port)] = rules;
  }
  return {};
}

Result<SwitchRules> checked(const SwitchRules& rules, const Topology& topology) {
  SwitchRules normal;
  std::size_t named = 0;
  for (const SwitchPort& port : switch_ports(topology)) {
    const std::string place = port_place(port);
    named += rules.ports.count(place);
    auto own = checked(rules.of(place), PortLine{port.rate_bps, port.buffer_bytes});
    if (!own) return fail(own.error().code, fmt::format("port {}: {}", place, own.error().message));
    if (*own != PortRules()) normal.ports[place] = *own;
  }
  if (named == rules.ports.size()) return normal;
  for (const auto& [place, own] : rules.ports) {
    const auto there = ports_at(topology, place);
    if (!there) return tl::unexpected(there.error());
    if (there->size() != 1 || port_place(there->front()) != place) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("rules of '{}', which is {} ports; allowed here: one port by its own name, as {}", place,
                              there->size(), port_place(there->front())));
    }
  }
  return normal;
}

}  // namespace clustar::bench::fabric
