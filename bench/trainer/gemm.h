// Single-precision matrix products, row-major, the same bits for the same operands and shapes. On the calling thread
// only, given a ComputeThread.
#pragma once

#include <cstddef>
#include <string>

namespace clustar::bench::trainer {

enum class Trans : bool { kNo = false, kYes = true };

// One product C[m x n] = op(A)[m x k] * op(B)[k x n]. A is stored m x k (k x m when transposed), B k x n (n x k).
struct GemmShape {
  Trans a = Trans::kNo;
  Trans b = Trans::kNo;
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
};

// oneDNN's where the build has it, otherwise plain_gemm. C is overwritten (zero when k is 0). Throws std::runtime_error
// when oneDNN refuses, which it does only for shapes that do not fit its integers.
void gemm(const GemmShape& shape, const float* a, const float* b, float* c);

// Always there: the fallback, and the oracle of the tests.
void plain_gemm(const GemmShape& shape, const float* a, const float* b, float* c);

// What `gemm` is, for reports: "oneDNN 2.6.3" or "plain GEMM (build without oneDNN)".
std::string gemm_name();

}  // namespace clustar::bench::trainer
