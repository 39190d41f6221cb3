// How much of a gradient each packet carries, for clustarApi_v2.markImportance (nccl_plugin/clustar.h).
#include "gdr/kernels/arguments.h"
#include "gdr/kernels/vectors.h"

namespace clustar::gdr {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ inline float magnitudes(const T* values, unsigned long long count, unsigned lane) {
  using Sixteen = Vector<T>;
  const unsigned long long head = before_boundary(values, count);
  const unsigned long long vectors = (count - head) / Sixteen::kElements;
  const auto* body = reinterpret_cast<const Sixteen*>(values + head);
  float sum = 0;
  if (lane < head) sum += fabsf(as_float(values[lane]));
  for (unsigned long long v = lane; v < vectors; v += kWarp) {
    const Sixteen loaded = body[v];
    for (unsigned i = 0; i < Sixteen::kElements; ++i) sum += fabsf(as_float(loaded.elements[i]));
  }
  const unsigned long long tail = head + vectors * Sixteen::kElements + lane;
  if (tail < count) sum += fabsf(as_float(values[tail]));
  return sum;
}

// A warp's lanes stay together: all have the same blocks.
template <class T>
__device__ inline void importance(const ImportanceArguments& of) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned long long warps = static_cast<unsigned long long>(gridDim.x) * (blockDim.x / kWarp);
  const unsigned long long blocks = (of.count + of.per_block - 1) / of.per_block;
  const auto* values = static_cast<const T*>(of.values);
  for (unsigned long long b = static_cast<unsigned long long>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
       b < blocks; b += warps) {
    const unsigned long long first = b * of.per_block;
    const unsigned long long left = of.count - first;
    float sum = magnitudes(values + first, left < of.per_block ? left : of.per_block, lane);
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (lane == 0) of.sums[b] = sum;
  }
}

}  // namespace clustar::gdr

// Threads of a block: a multiple of 32.
extern "C" __global__ void clustar_importance_f32(const clustar::gdr::ImportanceArguments of) {
  clustar::gdr::importance<float>(of);
}
extern "C" __global__ void clustar_importance_f16(const clustar::gdr::ImportanceArguments of) {
  clustar::gdr::importance<clustar::gdr::Half>(of);
}
extern "C" __global__ void clustar_importance_bf16(const clustar::gdr::ImportanceArguments of) {
  clustar::gdr::importance<clustar::gdr::Bfloat>(of);
}
