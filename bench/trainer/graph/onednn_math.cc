#include "bench/trainer/graph/onednn_math.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <stdexcept>
#include <variant>

#include "bench/trainer/graph/onednn_convolution.h"
#include "bench/trainer/graph/onednn_kernels.h"
#include "bench/trainer/graph/onednn_runtime.h"

namespace clustar::bench::trainer::graph {
namespace {

void onednn_gemm(const GemmShape& shape, const float* a, const float* b, float* c) {
  const auto [trans_a, trans_b, m, n, k] = shape;
  if (m == 0 || n == 0) return;
  if (k == 0) {
    std::fill(c, c + m * n, 0.0f);
    return;
  }
  const auto dim = [](std::size_t value) { return static_cast<dnnl_dim_t>(value); };
  const bool ta = trans_a == Trans::kYes;
  const bool tb = trans_b == Trans::kYes;
  const dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', dim(m), dim(n), dim(k), 1.0f, a,
                                          dim(ta ? m : k), b, dim(tb ? k : n), 0.0f, c, dim(n));
  if (status != dnnl_success) {
    throw std::runtime_error(
        fmt::format("oneDNN refused a matrix product of {} x {} x {} (status {})", m, n, k, static_cast<int>(status)));
  }
}

}  // namespace

OneDnnMath::OneDnnMath() : PlainMath(onednn_gemm), runtime_(std::make_shared<OneDnnRuntime>()) {}

std::string OneDnnMath::name() const {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::unique_ptr<Kernel> OneDnnMath::kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) {
  if (const auto* convolution = std::get_if<Convolution>(&op)) {
    return make_onednn_convolution(*convolution, inputs[0], output, runtime_);
  }
  if (const auto* pool = std::get_if<MaxPool>(&op)) return make_onednn_max_pool(*pool, inputs[0], output, runtime_);
  if (std::holds_alternative<BatchNorm>(op)) return make_onednn_batch_norm(output, runtime_);
  if (std::holds_alternative<Relu>(op)) return make_onednn_relu(output, runtime_);
  if (std::holds_alternative<Gelu>(op)) return make_onednn_gelu(output, runtime_);
  return PlainMath::kernel(op, inputs, output);
}

}  // namespace clustar::bench::trainer::graph
