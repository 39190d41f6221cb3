// Device code: sums of columns, a block for each chunk of rows of kSumColumns columns.
#pragma once

#include "bench/trainer/graph/cuda/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

constexpr unsigned kSumRows = kThreads / kSumColumns;

// sums[s][chunk][c], for kSums sums at once: add(row, column, parts) adds a row's terms to the parts. A thread takes
// every kSumRows-th row of its column, then the block's kSumRows parts of a column are added in order.
template <int kSums, class Add>
__device__ inline void sum_columns(const Chunks& of, float* const (&sums)[kSums], const Add& add) {
  __shared__ float parts[kSums][kSumRows][kSumColumns];
  const unsigned row = threadIdx.x / kSumColumns;
  const unsigned across = threadIdx.x % kSumColumns;
  const unsigned column = blockIdx.x * kSumColumns + across;
  const unsigned long long first = blockIdx.y * of.chunk;
  const unsigned long long end = first + of.chunk < of.rows ? first + of.chunk : of.rows;
  float own[kSums] = {};
  if (column < of.columns) {
    for (unsigned long long r = first + row; r < end; r += kSumRows) add(r, column, own);
  }
  for (int s = 0; s < kSums; ++s) parts[s][row][across] = own[s];
  __syncthreads();
  if (row != 0 || column >= of.columns) return;
  for (int s = 0; s < kSums; ++s) {
    for (unsigned r = 1; r < kSumRows; ++r) own[s] += parts[s][r][across];
    sums[s][blockIdx.y * static_cast<unsigned long long>(of.columns) + column] = own[s] / of.divisor;
  }
}

}  // namespace clustar::bench::trainer::graph::cuda
