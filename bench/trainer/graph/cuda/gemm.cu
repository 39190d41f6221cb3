// Products of matrices by tiles in shared memory.
#include "bench/trainer/graph/cuda/dense_arguments.h"

namespace clustar::bench::trainer::graph::cuda {

constexpr int kDepth = 16;            // of k, that a tile has at a time
constexpr int kSide = 16;             // threads of a block: kSide x kSide
constexpr int kEach = kTile / kSide;  // rows, and columns, of a thread
constexpr int kPadded = kTile + 1;    // so that a column's elements lie in different banks

// tile[d][i] = op(M)(first + i, depth + d), zero beyond `count` x `k`. `kDepthIsAdjacent`: M is stored count x k, and
// otherwise k x count; neighbours in memory are neighbouring threads'.
template <bool kDepthIsAdjacent>
__device__ inline void load_tile(float (&tile)[kDepth][kPadded], const float* matrix, int first, int count, int depth,
                                 int k) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int at = thread; at < kDepth * kTile; at += kSide * kSide) {
    const int d = kDepthIsAdjacent ? at % kDepth : at / kTile;
    const int i = kDepthIsAdjacent ? at / kDepth : at % kTile;
    const long long row = first + i;
    const long long column = depth + d;
    const bool inside = row < count && column < k;
    const long long place = kDepthIsAdjacent ? row * k + column : column * count + row;
    tile[d][i] = inside ? matrix[place] : 0.0f;
  }
}

// `kA`, `kB`: whether op(A)'s, op(B)'s elements of neighbouring k are neighbours in memory.
template <bool kA, bool kB>
__device__ inline void multiply(const GemmArguments& of) {
  __shared__ float a_tile[kDepth][kPadded];
  __shared__ float b_tile[kDepth][kPadded];
  const int down = static_cast<int>(threadIdx.x) / kSide;
  const int across = static_cast<int>(threadIdx.x) % kSide;
  const int first_row = static_cast<int>(blockIdx.x) * kTile;
  const int first_column = static_cast<int>(blockIdx.y) * kTile;
  float sums[kEach][kEach] = {};
  for (int depth = 0; depth < of.k; depth += kDepth) {
    load_tile<kA>(a_tile, of.a, first_row, of.m, depth, of.k);
    load_tile<kB>(b_tile, of.b, first_column, of.n, depth, of.k);
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      float a[kEach];
      float b[kEach];
      for (int i = 0; i < kEach; ++i) a[i] = a_tile[d][down + i * kSide];
      for (int j = 0; j < kEach; ++j) b[j] = b_tile[d][across + j * kSide];
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sums[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    const long long row = first_row + down + i * kSide;
    for (int j = 0; j < kEach; ++j) {
      const long long column = first_column + across + j * kSide;
      if (row < of.m && column < of.n) of.c[row * of.n + column] = sums[i][j];
    }
  }
}

}  // namespace clustar::bench::trainer::graph::cuda

extern "C" __global__ void __launch_bounds__(256, 2)
    clustar_gemm_nt(const clustar::bench::trainer::graph::cuda::GemmArguments of) {
  clustar::bench::trainer::graph::cuda::multiply<true, true>(of);
}
extern "C" __global__ void __launch_bounds__(256, 2)
    clustar_gemm_tn(const clustar::bench::trainer::graph::cuda::GemmArguments of) {
  clustar::bench::trainer::graph::cuda::multiply<false, false>(of);
}
extern "C" __global__ void __launch_bounds__(256, 2)
    clustar_gemm_nn(const clustar::bench::trainer::graph::cuda::GemmArguments of) {
  clustar::bench::trainer::graph::cuda::multiply<true, false>(of);
}
