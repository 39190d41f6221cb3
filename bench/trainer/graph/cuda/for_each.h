// Device code: one thread for each element.
#pragma once

namespace clustar::bench::trainer::graph::cuda {

// Calls act(i) for each i below `count` in one thread of the grid; neighbours in neighbouring threads.
template <class Act>
__device__ inline void for_each(unsigned long long count, const Act& act) {
  const unsigned long long threads = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += threads) {
    act(i);
  }
}

}  // namespace clustar::bench::trainer::graph::cuda
