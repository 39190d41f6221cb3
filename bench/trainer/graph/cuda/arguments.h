// What all of the trainer's kernels are launched with, for host and device code alike; each kind's arguments are in a
// header of its own. Pointers are the device's; floats are float32, matrices row-major, images NHWC, as everywhere in
// bench/trainer/graph.
#pragma once

#include "gdr/kernels/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

using gdr::Kernel;

inline constexpr unsigned kThreads = 256;  // of a block, for all of them

// Rows whose columns are summed in two stages, since a sum of millions takes more threads than a column has: each
// chunk of rows by itself, then the chunks' sums as rows of one chunk. A block takes kSumColumns columns of a chunk;
// the grid is those by chunks.
struct Chunks {
  unsigned long long rows = 0;
  unsigned long long chunk = 1;  // rows of one; the last may have fewer
  unsigned columns = 1;
  float divisor = 1;  // of each sum
};
inline constexpr unsigned kSumColumns = 32;

}  // namespace clustar::bench::trainer::graph::cuda
