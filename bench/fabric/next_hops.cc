#include "bench/fabric/next_hops.h"

#include <cstddef>
#include <queue>

namespace clustar::bench::fabric {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

std::vector<std::vector<int>> next_hops(const Graph& graph, int destination) {
  const std::size_t nodes = graph.forwards.size();
  std::vector<std::vector<int>> around(nodes);
  for (std::size_t edge = 0; edge < graph.edges.size(); ++edge) {
    around[at(graph.edges[edge].a)].push_back(static_cast<int>(edge));
    around[at(graph.edges[edge].b)].push_back(static_cast<int>(edge));
  }
  const auto other = [&](int edge, int node) {
    const Edge& one = graph.edges[at(edge)];
    return one.a == node ? one.b : one.a;
  };
  constexpr int kUnreached = -1;
  std::vector<int> distance(nodes, kUnreached);
  distance[at(destination)] = 0;
  std::queue<int> waiting({destination});
  while (!waiting.empty()) {
    const int node = waiting.front();
    waiting.pop();
    // A host ends the paths through it, but for its own.
    if (node != destination && !graph.forwards[at(node)]) continue;
    for (const int edge : around[at(node)]) {
      const int next = other(edge, node);
      if (distance[at(next)] != kUnreached) continue;
      distance[at(next)] = distance[at(node)] + 1;
      waiting.push(next);
    }
  }
  std::vector<std::vector<int>> hops(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    if (distance[node] <= 0) continue;
    for (const int edge : around[node]) {
      const int next = other(edge, static_cast<int>(node));
      if (distance[at(next)] != distance[node] - 1) continue;
      if (next == destination || graph.forwards[at(next)]) hops[node].push_back(edge);
    }
  }
  return hops;
}

}  // namespace clustar::bench::fabric
