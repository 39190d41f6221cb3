// Where a graph's parameters lie when they lie one behind the other, in node order.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/trainer/graph/graph.h"

namespace clustar::bench::trainer::graph {

struct TensorLayout {
  std::vector<std::size_t> sizes, offsets;  // by tensor, in elements
  std::size_t elements = 0;
};

inline TensorLayout layout_of(const Graph& net) {
  TensorLayout layout;
  for (const Node& node : net.nodes()) {
    for (const TensorSpec& tensor : net.tensors_of(node)) {
      layout.offsets.push_back(layout.elements);
      layout.sizes.push_back(tensor.elements);
      layout.elements += tensor.elements;
    }
  }
  return layout;
}

}  // namespace clustar::bench::trainer::graph
