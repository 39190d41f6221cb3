#include "bench/trainer/graph/cuda/launches.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "gdr/kernels/arguments.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;
using gdr::launch::Grid;

// Enough for a block of threads, and few enough chunks to be added as rows of one.
constexpr std::size_t kLeastChunk = 1024;
constexpr std::size_t kMostChunks = 1024;

std::size_t divided_up(std::size_t value, std::size_t by) { return (value + by - 1) / by; }

}  // namespace

void checked(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

int dimension(std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw std::runtime_error("a matrix on a GPU has at most 2147483647 rows and columns");
  }
  return static_cast<int>(value);
}

unsigned small(std::size_t value) { return static_cast<unsigned>(dimension(value)); }

void map(Device& device, const Kernel<MapArguments>& kernel, const float* x, float* y, std::size_t count) {
  launch_for(device, kernel, count, {.x = x, .y = y, .count = count});
}

void combine(Device& device, const Kernel<PairArguments>& kernel, const float* a, const float* b, float* result,
             std::size_t count) {
  launch_for(device, kernel, count, {.a = a, .b = b, .result = result, .count = count});
}

void add(Device& device, float* sum, const float* more, std::size_t count) {
  launch_for(device, gdr::kSumF32, count, {.sum = sum, .more = more, .count = count});
}

void round(Device& device, float* to, const float* from, std::size_t count, Precision precision) {
  launch_for(device, precision == Precision::kFloat16 ? kRoundF16 : kRoundBf16, count,
             {.from = from, .to = to, .count = count});
}

void add_bias(Device& device, float* values, const float* bias, std::size_t rows, std::size_t columns) {
  const std::size_t count = rows * columns;
  launch_for(device, kAddBias, count, {.values = values, .bias = bias, .count = count, .columns = small(columns)});
}

ColumnSums::ColumnSums(std::size_t rows, std::size_t columns)
    : rows_(rows),
      columns_(columns),
      chunk_(std::max(kLeastChunk, divided_up(rows, kMostChunks))),
      count_(std::max<std::size_t>(1, divided_up(rows, chunk_))) {}

Grid ColumnSums::grid_of(std::size_t chunks) const {
  return {.x = static_cast<unsigned>(divided_up(columns_, kSumColumns)),
          .y = static_cast<unsigned>(chunks),
          .threads = kThreads};
}

Chunks ColumnSums::chunks(float divisor) const {
  return {.rows = rows_, .chunk = chunk_, .columns = small(columns_), .divisor = count_ > 1 ? 1 : divisor};
}

void ColumnSums::finish(Device& device, float* sums, const float* scratch, float divisor) const {
  if (count_ == 1) return;
  const Chunks chunks{.rows = count_, .chunk = count_, .columns = small(columns_), .divisor = divisor};
  checked(device.launch(kColumnSums, grid_of(1), {.values = scratch, .sums = sums, .chunks = chunks}));
}

void sum_columns(Device& device, const float* values, float* sums, std::size_t rows, std::size_t columns,
                 float* scratch, float divisor) {
  const ColumnSums plan(rows, columns);
  checked(device.launch(kColumnSums, plan.grid(),
                        {.values = values, .sums = plan.first(sums, scratch), .chunks = plan.chunks(divisor)}));
  plan.finish(device, sums, scratch, divisor);
}

}  // namespace clustar::bench::trainer::graph::cuda
