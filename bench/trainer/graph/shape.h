// What one example is at a place of the network: rows x columns x channels, the channels of one position adjacent
// (NHWC). A vector is 1 x 1 x channels, a text tokens x 1 x channels.
#pragma once

#include <cstddef>

namespace clustar::bench::trainer::graph {

struct Shape {
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t channels = 1;

  std::size_t positions() const { return rows * columns; }
  std::size_t elements() const { return positions() * channels; }
  bool operator==(const Shape&) const = default;
};

}  // namespace clustar::bench::trainer::graph
