// Zeroes what did not arrive, before somebody sums it.
#include "gdr/kernels/arguments.h"
#include "gdr/kernels/vectors.h"

extern "C" __global__ void clustar_zero_ranges(const clustar::gdr::ZeroArguments of) {
  using Sixteen = clustar::gdr::Vector<unsigned>;
  for (unsigned long long r = blockIdx.x; r < of.count; r += gridDim.x) {
    unsigned char* const bytes = of.base + of.ranges[2 * r];
    const unsigned long long length = of.ranges[2 * r + 1];
    const unsigned long long head = clustar::gdr::before_boundary(bytes, length);
    const unsigned long long vectors = (length - head) / sizeof(Sixteen);
    auto* const body = reinterpret_cast<Sixteen*>(bytes + head);
    for (unsigned long long i = threadIdx.x; i < head; i += blockDim.x) bytes[i] = 0;
    for (unsigned long long v = threadIdx.x; v < vectors; v += blockDim.x) body[v] = Sixteen{{0, 0, 0, 0}};
    for (unsigned long long i = head + vectors * sizeof(Sixteen) + threadIdx.x; i < length; i += blockDim.x) {
      bytes[i] = 0;
    }
  }
}
