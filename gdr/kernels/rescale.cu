// Scales sums to which not every rank contributed, so that a lost packet does not shrink a gradient.
#include "gdr/kernels/arguments.h"
#include "gdr/kernels/vectors.h"

extern "C" __global__ void clustar_rescale_f32(const clustar::gdr::RescaleArguments of) {
  using Sixteen = clustar::gdr::Vector<float>;
  for (unsigned long long s = blockIdx.x; s < of.count; s += gridDim.x) {
    float* const values = of.values + of.segments[3 * s];
    const unsigned long long length = of.segments[3 * s + 1];
    const unsigned long long contributions = of.segments[3 * s + 2];
    const auto scaled = [&](float sum) {
      return static_cast<float>(static_cast<double>(sum) * of.ranks / static_cast<double>(contributions));
    };
    const unsigned long long head = clustar::gdr::before_boundary(values, length);
    const unsigned long long vectors = (length - head) / Sixteen::kElements;
    auto* const body = reinterpret_cast<Sixteen*>(values + head);
    for (unsigned long long i = threadIdx.x; i < head; i += blockDim.x) values[i] = scaled(values[i]);
    for (unsigned long long v = threadIdx.x; v < vectors; v += blockDim.x) {
      Sixteen loaded = body[v];
      for (unsigned i = 0; i < Sixteen::kElements; ++i) loaded.elements[i] = scaled(loaded.elements[i]);
      body[v] = loaded;
    }
    for (unsigned long long i = head + vectors * Sixteen::kElements + threadIdx.x; i < length; i += blockDim.x) {
      values[i] = scaled(values[i]);
    }
  }
}
