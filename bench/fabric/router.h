// A switch that routes: what a fabric of several switches needs beside cables and queues. Addresses and neighbours are
// fixed, so that nobody asks around and no lost question holds up a port. IPv4 only.
#pragma once

#include <string>
#include <vector>

#include "bench/fabric/topology.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// In the namespace of the switch of that index, before it has links: forwarding, equal-cost paths by addresses and
// ports (policy 1), no check of where packets come from, links without carrier left out. The hash has a seed of its own
// where the kernel lets it be set (6.10): the same ports take the same paths in every fabric of the same form.
Result<void> make_router(int index);
// What is not as make_router() left it, one sentence each. In the switch's namespace.
std::vector<std::string> router_problems();

// For each node the lines for `ip -batch` in its namespace, where the links are up: addresses, neighbours, routes.
std::vector<std::string> route_lines(const Topology& topology);

// For each node and host, the interfaces of the node's shortest paths to that host, sorted.
std::vector<std::vector<std::vector<std::string>>> next_interfaces(const Topology& topology);

}  // namespace clustar::bench::fabric
