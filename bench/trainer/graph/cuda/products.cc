#include "bench/trainer/graph/cuda/products.h"

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/launches.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Grid;

const Kernel<GemmArguments>& kernel_of(Form form) {
  switch (form) {
    case Form::kNt: return kGemmNt;
    case Form::kTn: return kGemmTn;
    case Form::kNn: break;
  }
  return kGemmNn;
}

unsigned tiles(std::size_t count) { return static_cast<unsigned>((count + kTile - 1) / kTile); }

}  // namespace

void KernelProducts::multiply(Form form, const float* a, const float* b, float* c, std::size_t m, std::size_t n,
                              std::size_t k) {
  if (m == 0 || n == 0) return;
  const Grid grid{.x = tiles(m), .y = tiles(n), .threads = kThreads};
  checked(device_.launch(kernel_of(form), grid,
                         {.a = a, .b = b, .c = c, .m = dimension(m), .n = dimension(n), .k = dimension(k)}));
}

}  // namespace clustar::bench::trainer::graph::cuda
