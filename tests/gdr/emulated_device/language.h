// CUDA's words for a host compiler, as far as our kernels use them. Included before kernels, and nowhere else: the
// names are reserved ones.
#pragma once

#include <bit>
#include <cmath>

#include "tests/gdr/emulated_device/block.h"

#define __global__
#define __device__
// A block's threads are fibers of one thread, and its blocks run one after the other.
#define __shared__ static thread_local
#define __launch_bounds__(...)

#define threadIdx (::clustar::emulated::here().thread)
#define blockIdx (::clustar::emulated::here().block)
#define blockDim (::clustar::emulated::here().block_size)
#define gridDim (::clustar::emulated::here().grid_size)
#define __syncthreads() ::clustar::emulated::barrier(__FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, lanes) ::clustar::emulated::shuffled(mask, value, lanes, __FILE__, __LINE__)

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

namespace clustar::emulated {

inline float shuffled(unsigned mask, float value, unsigned lanes, const char* file, int line) {
  const unsigned lane = here().thread.x % 32 ^ lanes;
  return __uint_as_float(static_cast<unsigned>(exchange(mask, __float_as_uint(value), lane, file, line)));
}

template <auto kFunction>
struct Caller;
template <class Argument, void (*kFunction)(Argument)>
struct Caller<kFunction> {
  static KernelEntry entry(const char* name) {
    return {name, sizeof(Argument), [](const void* argument) { kFunction(*static_cast<const Argument*>(argument)); }};
  }
};

}  // namespace clustar::emulated

// So that it can be launched by its name.
#define CLUSTAR_EMULATED_KERNEL(name) \
  static const bool name##_is_known = ::clustar::emulated::add_kernel(::clustar::emulated::Caller<name>::entry(#name))
