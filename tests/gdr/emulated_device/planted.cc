// Kernels that are wrong on purpose: what the emulation has to find.
#include "tests/gdr/emulated_device/planted.h"

#include "tests/gdr/emulated_device/language.h"

namespace {

using clustar::emulated::PlantedArguments;

// Each thread's value is its neighbour's, by shared memory.
template <bool kWaits>
void rotate(const PlantedArguments& of) {
  __shared__ float values[64];
  const unsigned own = threadIdx.x;
  values[own] = of.values[own];
  if (kWaits) __syncthreads();
  of.values[own] = values[(own + 1) % blockDim.x];
}

}  // namespace

extern "C" __global__ void planted_none(PlantedArguments of) { rotate<true>(of); }
extern "C" __global__ void planted_race(PlantedArguments of) { rotate<false>(of); }

extern "C" __global__ void planted_barrier_of_some(PlantedArguments of) {
  if (threadIdx.x < of.count) __syncthreads();
  of.values[threadIdx.x] = 1;
}

extern "C" __global__ void planted_two_barriers(PlantedArguments of) {
  if (threadIdx.x < of.count) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  of.values[threadIdx.x] = 1;
}

extern "C" __global__ void planted_shuffle_of_some(PlantedArguments of) {
  float value = of.values[threadIdx.x];
  if (threadIdx.x < of.count) value = __shfl_xor_sync(0xffffffffu, value, 1);
  of.values[threadIdx.x] = value;
}

extern "C" __global__ void planted_beyond_the_end(PlantedArguments of) { of.values[threadIdx.x + 1] = 1; }

CLUSTAR_EMULATED_KERNEL(planted_none);
CLUSTAR_EMULATED_KERNEL(planted_race);
CLUSTAR_EMULATED_KERNEL(planted_barrier_of_some);
CLUSTAR_EMULATED_KERNEL(planted_two_barriers);
CLUSTAR_EMULATED_KERNEL(planted_shuffle_of_some);
CLUSTAR_EMULATED_KERNEL(planted_beyond_the_end);
