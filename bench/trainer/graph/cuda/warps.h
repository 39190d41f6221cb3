// Device code: one warp for each row.
#pragma once

namespace clustar::bench::trainer::graph::cuda {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// Calls act(row, lane) for each row below `count` in all lanes of one warp of the grid, which stay together.
template <class Act>
__device__ inline void for_each_row(unsigned long long count, const Act& act) {
  const unsigned of_block = blockDim.x / kWarp;
  const unsigned long long warps = static_cast<unsigned long long>(gridDim.x) * of_block;
  for (unsigned long long row = static_cast<unsigned long long>(blockIdx.x) * of_block + threadIdx.x / kWarp;
       row < count; row += warps) {
    act(row, threadIdx.x % kWarp);
  }
}

// Every lane gets the same bits.
__device__ inline float sum_of_lanes(float value) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

__device__ inline float largest_of_lanes(float value) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

}  // namespace clustar::bench::trainer::graph::cuda
