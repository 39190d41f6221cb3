#include "bench/trainer/graph/gemm.h"

#include <algorithm>
#include <vector>

namespace clustar::bench::trainer::graph {
namespace {

constexpr std::size_t kRowBlock = 4;     // rows of C that share one pass over a row of B
constexpr std::size_t kDepthBlock = 64;  // rows of B that stay in the cache meanwhile

// The operand as rows x columns without transposition, in `scratch` when it has to be turned.
const float* untransposed(Trans trans, std::size_t rows, std::size_t columns, const float* matrix,
                          std::vector<float>& scratch) {
  if (trans == Trans::kNo) return matrix;
  scratch.resize(rows * columns);
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = 0; r < rows; ++r) scratch[r * columns + c] = matrix[c * rows + r];
  }
  return scratch.data();
}

// Rows [row, row + kRowBlock) of C += A * B over the depth [from, to). Each element of C sums in the order of k.
void add_row_block(const float* a, const float* b, float* c, std::size_t row, std::size_t n, std::size_t k,
                   std::size_t from, std::size_t to) {
  float* __restrict c0 = c + row * n;
  float* __restrict c1 = c0 + n;
  float* __restrict c2 = c1 + n;
  float* __restrict c3 = c2 + n;
  for (std::size_t p = from; p < to; ++p) {
    const float* __restrict line = b + p * n;
    const float a0 = a[row * k + p];
    const float a1 = a[(row + 1) * k + p];
    const float a2 = a[(row + 2) * k + p];
    const float a3 = a[(row + 3) * k + p];
    for (std::size_t j = 0; j < n; ++j) {
      c0[j] += a0 * line[j];
      c1[j] += a1 * line[j];
      c2[j] += a2 * line[j];
      c3[j] += a3 * line[j];
    }
  }
}

void add_row(const float* a, const float* b, float* c, std::size_t row, std::size_t n, std::size_t k, std::size_t from,
             std::size_t to) {
  float* __restrict out = c + row * n;
  for (std::size_t p = from; p < to; ++p) {
    const float* __restrict line = b + p * n;
    const float factor = a[row * k + p];
    for (std::size_t j = 0; j < n; ++j) out[j] += factor * line[j];
  }
}

}  // namespace

void plain_gemm(const GemmShape& shape, const float* a, const float* b, float* c) {
  const auto [trans_a, trans_b, m, n, k] = shape;
  std::vector<float> scratch_a;
  std::vector<float> scratch_b;
  a = untransposed(trans_a, m, k, a, scratch_a);
  b = untransposed(trans_b, k, n, b, scratch_b);
  std::fill(c, c + m * n, 0.0f);
  for (std::size_t from = 0; from < k; from += kDepthBlock) {
    const std::size_t to = std::min(from + kDepthBlock, k);
    std::size_t row = 0;
    for (; row + kRowBlock <= m; row += kRowBlock) add_row_block(a, b, c, row, n, k, from, to);
    for (; row < m; ++row) add_row(a, b, c, row, n, k, from, to);
  }
}

}  // namespace clustar::bench::trainer::graph
