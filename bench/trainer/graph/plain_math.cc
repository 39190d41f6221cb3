#include "bench/trainer/graph/plain_math.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <variant>

#include "bench/trainer/graph/dense_kernels.h"
#include "bench/trainer/graph/image_kernels.h"
#include "bench/trainer/graph/norm_kernels.h"
#include "bench/trainer/graph/text_kernels.h"

namespace clustar::bench::trainer::graph {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector
constexpr std::size_t kHugePage = 2u << 20;

struct Maker {
  const Shape& in;
  const Shape& out;
  Gemm gemm;

  std::unique_ptr<Kernel> operator()(const Input&) const { throw std::invalid_argument("the input has no kernel"); }
  std::unique_ptr<Kernel> operator()(const Linear& op) const { return make_linear(op, in, gemm); }
  std::unique_ptr<Kernel> operator()(const Convolution& op) const { return make_convolution(op, in, out, gemm); }
  std::unique_ptr<Kernel> operator()(const MaxPool& op) const { return make_max_pool(op, in, out); }
  std::unique_ptr<Kernel> operator()(const AdaptiveAveragePool&) const { return make_average_pool(in, out); }
  std::unique_ptr<Kernel> operator()(const BatchNorm&) const { return make_batch_norm(in); }
  std::unique_ptr<Kernel> operator()(const LayerNorm&) const { return make_layer_norm(in); }
  std::unique_ptr<Kernel> operator()(const Relu&) const { return make_relu(in); }
  std::unique_ptr<Kernel> operator()(const Gelu&) const { return make_gelu(in); }
  std::unique_ptr<Kernel> operator()(const Dropout& op) const { return make_dropout(op, in); }
  std::unique_ptr<Kernel> operator()(const Add&) const { return make_add(in); }
  std::unique_ptr<Kernel> operator()(const Embedding& op) const { return make_embedding(op, in); }
  std::unique_ptr<Kernel> operator()(const Attention& op) const { return make_attention(op, out, gemm); }
};

}  // namespace

Memory PlainMath::allocate(std::size_t floats) {
  if (floats == 0) return {};
  const std::size_t bytes = floats * sizeof(float);
  const std::align_val_t alignment = bytes >= kHugePage ? std::align_val_t{kHugePage} : kAlignment;
  auto* memory = static_cast<float*>(::operator new(bytes, alignment));
  // Activations are large and visited in strides: with usual pages, much time goes into looking those up.
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  std::fill_n(memory, floats, 0.0f);
  return Memory(memory, [alignment](float* pointer) { ::operator delete(pointer, alignment); });
}

void PlainMath::upload(float* device, const float* host, std::size_t count) { std::copy_n(host, count, device); }

void PlainMath::download(float* host, const float* device, std::size_t count) { std::copy_n(device, count, host); }

void PlainMath::fill(float* values, std::size_t count, float value) { std::fill_n(values, count, value); }

void PlainMath::add(float* sum, const float* more, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
}

void PlainMath::round(float* to, const float* from, std::size_t count, Precision precision) {
  if (to != from) std::copy_n(from, count, to);
  round_to(precision, {to, count});
}

std::unique_ptr<Kernel> PlainMath::kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) {
  return std::visit(Maker{inputs[0], output, gemm_}, op);
}

}  // namespace clustar::bench::trainer::graph
