// Single-precision matrix products, row-major, the same bits for the same operands and shapes. On the calling thread
// only, given a ComputeThread.
#pragma once

#include <cstddef>

namespace clustar::bench::trainer::graph {

enum class Trans : bool { kNo = false, kYes = true };

// One product C[m x n] = op(A)[m x k] * op(B)[k x n]. A is stored m x k (k x m when transposed), B k x n (n x k).
struct GemmShape {
  Trans a = Trans::kNo;
  Trans b = Trans::kNo;
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
};

// C is overwritten (zero when k is 0). Each element of C sums in the order of k.
void plain_gemm(const GemmShape& shape, const float* a, const float* b, float* c);

// plain_gemm, or a library's.
using Gemm = void (*)(const GemmShape& shape, const float* a, const float* b, float* c);

}  // namespace clustar::bench::trainer::graph
