#include "bench/trainer/graph/cuda/cuda_math.h"

#include <fmt/format.h>

#include <bit>
#include <stdexcept>
#include <utility>
#include <variant>

#include "bench/trainer/graph/cuda/dense_kernels.h"
#include "bench/trainer/graph/cuda/device_code.h"
#include "bench/trainer/graph/cuda/image_kernels.h"
#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/cuda/libraries/cudnn_convolution.h"
#include "bench/trainer/graph/cuda/norm_kernels.h"
#include "bench/trainer/graph/cuda/text_kernels.h"

namespace clustar::bench::trainer::graph {

using cuda::checked;
using gdr::launch::Device;

namespace {

struct CudaMaker {
  Device& device;
  cuda::Products& products;
  cuda::Cudnn* cudnn;  // null: without
  const Shape& in;
  const Shape& out;

  std::unique_ptr<Kernel> operator()(const Input&) const { throw std::invalid_argument("the input has no kernel"); }
  std::unique_ptr<Kernel> operator()(const Linear& op) const { return cuda::make_linear(device, products, op, in); }
  std::unique_ptr<Kernel> operator()(const Convolution& op) const {
    auto by_products = cuda::make_convolution(device, products, op, in, out);
    if (cudnn == nullptr) return by_products;
    return cuda::make_cudnn_convolution(*cudnn, op, in, out, std::move(by_products));
  }
  std::unique_ptr<Kernel> operator()(const MaxPool& op) const { return cuda::make_max_pool(device, op, in, out); }
  std::unique_ptr<Kernel> operator()(const AdaptiveAveragePool&) const {
    return cuda::make_average_pool(device, in, out);
  }
  std::unique_ptr<Kernel> operator()(const BatchNorm&) const { return cuda::make_batch_norm(device, in); }
  std::unique_ptr<Kernel> operator()(const LayerNorm&) const { return cuda::make_layer_norm(device, in); }
  std::unique_ptr<Kernel> operator()(const Relu&) const { return cuda::make_relu(device, in); }
  std::unique_ptr<Kernel> operator()(const Gelu&) const { return cuda::make_gelu(device, in); }
  std::unique_ptr<Kernel> operator()(const Dropout& op) const { return cuda::make_dropout(device, op, in); }
  std::unique_ptr<Kernel> operator()(const Add&) const { return cuda::make_add(device, in); }
  std::unique_ptr<Kernel> operator()(const Embedding& op) const { return cuda::make_embedding(device, op, in); }
  std::unique_ptr<Kernel> operator()(const Attention& op) const { return cuda::make_attention(device, op, out); }
};

}  // namespace

Result<std::unique_ptr<CudaMath>> CudaMath::open(const std::string& driver, int number,
                                                 const cuda::MathOptions& options) {
  auto device = Device::open(driver, gdr::launch::clustar_trainer_device_code, number);
  if (!device) return tl::unexpected(device.error());
  auto libraries = cuda::open_libraries(**device, options);
  if (!libraries) return tl::unexpected(libraries.error());
  return std::unique_ptr<CudaMath>(new CudaMath(std::move(*device), std::move(*libraries)));
}

CudaMath::CudaMath(std::unique_ptr<Device> device, cuda::Libraries libraries)
    : device_(std::move(device)), kernel_products_(*device_), libraries_(std::move(libraries)) {}

cuda::Products& CudaMath::products() {
  if (libraries_.cublas != nullptr) return *libraries_.cublas;
  return kernel_products_;
}

std::string CudaMath::name() const {
  std::string by = "own CUDA kernels";
  if (libraries_.cublas != nullptr) by = fmt::format("{}, {}", libraries_.text(), by);
  if (!libraries_.missing.empty()) by += fmt::format(" ({})", libraries_.missing);
  return emulated() ? by + " on an emulated device: its times mean nothing"
                    : fmt::format("{} on {}", by, device_->name());
}

Memory CudaMath::allocate(std::size_t floats) {
  if (floats == 0) return {};
  auto memory = device_->allocate(floats * sizeof(float));
  if (!memory) throw std::runtime_error(memory.error().message);
  auto* const values = static_cast<float*>(*memory);
  Memory owned(values, [device = device_.get()](float* pointer) { device->release(pointer); });
  checked(device_->fill(values, 0, floats));
  return owned;
}

void CudaMath::upload(float* device, const float* host, std::size_t count) {
  checked(device_->upload(device, host, count * sizeof(float)));
}

void CudaMath::download(float* host, const float* device, std::size_t count) {
  checked(device_->download(host, device, count * sizeof(float)));
}

void CudaMath::fill(float* values, std::size_t count, float value) {
  checked(device_->fill(values, std::bit_cast<std::uint32_t>(value), count));
}

void CudaMath::add(float* sum, const float* more, std::size_t count) { cuda::add(*device_, sum, more, count); }

void CudaMath::round(float* to, const float* from, std::size_t count, Precision precision) {
  cuda::round(*device_, to, from, count, precision);
}

void CudaMath::sgd(const cuda::SgdArguments& step) {
  if (step.count == 0) return;
  checked(device_->launch(cuda::kSgd, device_->grid_for(step.count, cuda::kThreads), step));
}

void* CudaMath::mark() {
  const auto event = device_->mark();
  if (!event) throw std::runtime_error(event.error().message);
  return *event;
}

std::unique_ptr<Kernel> CudaMath::kernel(const Op& op, std::span<const Shape> inputs, const Shape& output) {
  return std::visit(CudaMaker{*device_, products(), libraries_.cudnn.get(), inputs[0], output}, op);
}

}  // namespace clustar::bench::trainer::graph
