// Element-wise sums: what an aggregator does with contributions that lie on a GPU.
#include "gdr/kernels/arguments.h"
#include "gdr/kernels/vectors.h"

namespace clustar::gdr {

__device__ inline void add(float& sum, float more) { sum += more; }
__device__ inline void add(double& sum, double more) { sum += more; }
__device__ inline void add(unsigned char& sum, unsigned char more) { sum = static_cast<unsigned char>(sum + more); }
__device__ inline void add(unsigned& sum, unsigned more) { sum += more; }
__device__ inline void add(unsigned long long& sum, unsigned long long more) { sum += more; }
template <class SixteenBits>
__device__ inline void add(SixteenBits& sum, SixteenBits more) {
  store(sum, as_float(sum) + as_float(more));
}

template <class T>
__device__ inline void sum_all(const SumArguments& of) {
  using Sixteen = Vector<T>;
  auto* const sum = static_cast<T*>(of.sum);
  const auto* const more = static_cast<const T*>(of.more);
  const unsigned long long thread = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const unsigned long long threads = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  // Both are at 16-byte boundaries together, or never are.
  const unsigned long long apart =
      reinterpret_cast<unsigned long long>(sum) ^ reinterpret_cast<unsigned long long>(more);
  const unsigned long long head = apart % 16 == 0 ? before_boundary(sum, of.count) : of.count;
  const unsigned long long vectors = (of.count - head) / Sixteen::kElements;
  for (unsigned long long i = thread; i < head; i += threads) add(sum[i], more[i]);
  auto* const body = reinterpret_cast<Sixteen*>(sum + head);
  const auto* const more_body = reinterpret_cast<const Sixteen*>(more + head);
  for (unsigned long long v = thread; v < vectors; v += threads) {
    Sixteen added = body[v];
    const Sixteen loaded = more_body[v];
    for (unsigned i = 0; i < Sixteen::kElements; ++i) add(added.elements[i], loaded.elements[i]);
    body[v] = added;
  }
  for (unsigned long long i = head + vectors * Sixteen::kElements + thread; i < of.count; i += threads) {
    add(sum[i], more[i]);
  }
}

}  // namespace clustar::gdr

extern "C" __global__ void clustar_sum_f32(const clustar::gdr::SumArguments of) { clustar::gdr::sum_all<float>(of); }
extern "C" __global__ void clustar_sum_f64(const clustar::gdr::SumArguments of) { clustar::gdr::sum_all<double>(of); }
extern "C" __global__ void clustar_sum_f16(const clustar::gdr::SumArguments of) {
  clustar::gdr::sum_all<clustar::gdr::Half>(of);
}
extern "C" __global__ void clustar_sum_bf16(const clustar::gdr::SumArguments of) {
  clustar::gdr::sum_all<clustar::gdr::Bfloat>(of);
}
extern "C" __global__ void clustar_sum_i8(const clustar::gdr::SumArguments of) {
  clustar::gdr::sum_all<unsigned char>(of);
}
extern "C" __global__ void clustar_sum_i32(const clustar::gdr::SumArguments of) { clustar::gdr::sum_all<unsigned>(of); }
extern "C" __global__ void clustar_sum_i64(const clustar::gdr::SumArguments of) {
  clustar::gdr::sum_all<unsigned long long>(of);
}
