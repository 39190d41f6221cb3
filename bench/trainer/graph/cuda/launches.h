// What operations of several kinds launch. What a launch fails with is thrown as std::runtime_error.
#pragma once

#include <cstddef>

#include "bench/trainer/graph/cuda/arguments.h"
#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/precision/precision.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph::cuda {

void checked(const Result<void>& result);  // throws its error

// As kernels and libraries take it; throws beyond 2^31 - 1.
int dimension(std::size_t value);
unsigned small(std::size_t value);

// A thread for each of `count`; a warp for each row where that is kWarpThreads for each.
template <class Argument>
void launch_for(gdr::launch::Device& device, const Kernel<Argument>& kernel, std::size_t count, Argument argument) {
  checked(device.launch(kernel, device.grid_for(count, kThreads), argument));
}
inline constexpr std::size_t kWarpThreads = 32;

void map(gdr::launch::Device& device, const Kernel<MapArguments>& kernel, const float* x, float* y, std::size_t count);
void combine(gdr::launch::Device& device, const Kernel<PairArguments>& kernel, const float* a, const float* b,
             float* result, std::size_t count);
void add(gdr::launch::Device& device, float* sum, const float* more, std::size_t count);  // sum += more
void round(gdr::launch::Device& device, float* to, const float* from, std::size_t count,
           Precision precision);  // to 16 bits

void add_bias(gdr::launch::Device& device, float* values, const float* bias, std::size_t rows, std::size_t columns);

// The two stages of sums of columns. How rows are cut hangs on their number alone, so that the same sums have the same
// bits on every device.
class ColumnSums {
 public:
  ColumnSums(std::size_t rows, std::size_t columns);

  std::size_t scratch() const { return count_ > 1 ? count_ * columns_ : 0; }  // floats
  gdr::launch::Grid grid() const { return grid_of(count_); }
  // Of the first stage, which writes its sums to first(sums, scratch); finish() makes `sums` of those.
  Chunks chunks(float divisor = 1) const;
  float* first(float* sums, float* scratch) const { return count_ > 1 ? scratch : sums; }
  void finish(gdr::launch::Device& device, float* sums, const float* scratch, float divisor = 1) const;

 private:
  gdr::launch::Grid grid_of(std::size_t chunks) const;

  std::size_t rows_;
  std::size_t columns_;
  std::size_t chunk_;  // rows
  std::size_t count_;  // of chunks
};
// Both stages. `scratch`: ColumnSums::scratch() floats.
void sum_columns(gdr::launch::Device& device, const float* values, float* sums, std::size_t rows, std::size_t columns,
                 float* scratch, float divisor = 1);

}  // namespace clustar::bench::trainer::graph::cuda
