// Equal-cost shortest paths in a graph: where a packet goes next. Values only.
#pragma once

#include <vector>

namespace clustar::bench::fabric {

struct Edge {
  int a = 0, b = 0;  // nodes, from 0
};

// A graph of `forwards.size()` nodes. Only nodes that forward are passed through; any may be a source or a destination.
struct Graph {
  std::vector<bool> forwards;
  std::vector<Edge> edges;
};

// For each node the edges on which some shortest path to `destination` leaves it, in the edges' order: none for the
// destination itself and for nodes that cannot reach it.
std::vector<std::vector<int>> next_hops(const Graph& graph, int destination);

}  // namespace clustar::bench::fabric
