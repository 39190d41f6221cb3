// Element by element, and sums of columns.
#include "bench/trainer/graph/cuda/column_sums.h"
#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/for_each.h"
#include "gdr/kernels/vectors.h"

namespace clustar::bench::trainer::graph::cuda {

template <class SixteenBits>
__device__ inline void round_all(const RoundArguments& of) {
  for_each(of.count, [&](unsigned long long i) {
    SixteenBits rounded;
    gdr::store(rounded, of.from[i]);
    of.to[i] = gdr::as_float(rounded);
  });
}

template <class Function>
__device__ inline void map(const MapArguments& of, const Function& function) {
  for_each(of.count, [&](unsigned long long i) { of.y[i] = function(of.x[i]); });
}

template <class Function>
__device__ inline void combine(const PairArguments& of, const Function& function) {
  for_each(of.count, [&](unsigned long long i) { of.result[i] = function(of.a[i], of.b[i]); });
}

constexpr float kGeluRoot = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

__device__ inline float gelu_tanh(float x) { return tanhf(kGeluRoot * (x + kGeluCubic * x * x * x)); }

// The finalizer of splitmix64, as transport/base/rng.h has it for the host.
__device__ inline unsigned long long mixed(unsigned long long z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

__device__ inline float dropout_factor(const DropoutArguments& of, unsigned long long i) {
  constexpr unsigned long long kGoldenGamma = 0x9e3779b97f4a7c15ull;
  const unsigned place = static_cast<unsigned>(i % 4);
  const unsigned long long word = mixed(of.draw + (i - place) * kGoldenGamma);
  return static_cast<unsigned>(word >> (16 * place) & 0xffffu) < of.dropped_below ? 0.0f : of.scale;
}

}  // namespace clustar::bench::trainer::graph::cuda

extern "C" __global__ void clustar_round_bf16(const clustar::bench::trainer::graph::cuda::RoundArguments of) {
  clustar::bench::trainer::graph::cuda::round_all<clustar::gdr::Bfloat>(of);
}
extern "C" __global__ void clustar_round_f16(const clustar::bench::trainer::graph::cuda::RoundArguments of) {
  clustar::bench::trainer::graph::cuda::round_all<clustar::gdr::Half>(of);
}

extern "C" __global__ void clustar_add_bias(const clustar::bench::trainer::graph::cuda::BiasArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(
      of.count, [&](unsigned long long i) { of.values[i] += of.bias[i % of.columns]; });
}

extern "C" __global__ void clustar_sgd(const clustar::bench::trainer::graph::cuda::SgdArguments of) {
  clustar::bench::trainer::graph::cuda::for_each(of.count, [&](unsigned long long i) {
    // Not even a product with zero: an infinite parameter would make it NaN.
    const float decayed = of.weight_decay == 0 ? of.gradients[i] : of.gradients[i] + of.weight_decay * of.parameters[i];
    const float velocity = of.momentum * of.velocity[i] + decayed;
    of.velocity[i] = velocity;
    of.parameters[i] -= of.rate * velocity;
  });
}

extern "C" __global__ void clustar_column_sums(const clustar::bench::trainer::graph::cuda::ColumnSumsArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  float* const sums[] = {of.sums};
  sum_columns(of.chunks, sums, [&](unsigned long long row, unsigned column, float(&parts)[1]) {
    parts[0] += of.values[row * of.chunks.columns + column];
  });
}

extern "C" __global__ void clustar_relu(const clustar::bench::trainer::graph::cuda::MapArguments of) {
  clustar::bench::trainer::graph::cuda::map(of, [](float x) { return x > 0 ? x : 0.0f; });
}
extern "C" __global__ void clustar_gelu(const clustar::bench::trainer::graph::cuda::MapArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  map(of, [](float x) { return 0.5f * x * (1 + gelu_tanh(x)); });
}
extern "C" __global__ void clustar_copy(const clustar::bench::trainer::graph::cuda::MapArguments of) {
  clustar::bench::trainer::graph::cuda::map(of, [](float x) { return x; });
}

extern "C" __global__ void clustar_relu_gradient(const clustar::bench::trainer::graph::cuda::PairArguments of) {
  clustar::bench::trainer::graph::cuda::combine(of, [](float y, float dy) { return y > 0 ? dy : 0.0f; });
}
extern "C" __global__ void clustar_gelu_gradient(const clustar::bench::trainer::graph::cuda::PairArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  combine(of, [](float x, float dy) {
    const float t = gelu_tanh(x);
    const float slope = kGeluRoot * (1 + 3 * kGeluCubic * x * x);
    return dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope);
  });
}
extern "C" __global__ void clustar_add(const clustar::bench::trainer::graph::cuda::PairArguments of) {
  clustar::bench::trainer::graph::cuda::combine(of, [](float a, float b) { return a + b; });
}
extern "C" __global__ void clustar_multiply(const clustar::bench::trainer::graph::cuda::PairArguments of) {
  clustar::bench::trainer::graph::cuda::combine(of, [](float a, float b) { return a * b; });
}

extern "C" __global__ void clustar_dropout(const clustar::bench::trainer::graph::cuda::DropoutArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) {
    const float factor = dropout_factor(of, i);
    of.factors[i] = factor;
    of.y[i] = of.x[i] * factor;
  });
}
