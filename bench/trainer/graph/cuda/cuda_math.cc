#include "bench/trainer/graph/cuda/cuda_math.h"

#include <fmt/format.h>

#include <bit>
#include <stdexcept>
#include <utility>
#include <variant>

#include "bench/trainer/graph/cuda/cuda_kernels.h"

namespace clustar::gdr::launch {

extern const Image clustar_trainer_device_code;  // by clustar_device_code() of the build

}  // namespace clustar::gdr::launch

namespace clustar::bench::trainer::graph {

using cuda::checked;

bool CudaMath::has_kernel(const Op& op) {
  return std::holds_alternative<Linear>(op) || std::holds_alternative<Convolution>(op) ||
         std::holds_alternative<MaxPool>(op) || std::holds_alternative<Relu>(op);
}

Result<std::unique_ptr<CudaMath>> CudaMath::open(const std::string& driver, int number) {
  auto device = gdr::launch::Device::open(driver, gdr::launch::clustar_trainer_device_code, number);
  if (!device) return tl::unexpected(device.error());
  return std::unique_ptr<CudaMath>(new CudaMath(std::move(*device)));
}

std::string CudaMath::name() const {
  return emulated() ? "own CUDA kernels on an emulated device: its times mean nothing"
                    : fmt::format("own CUDA kernels on {}", device_->name());
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
  if (const auto* linear = std::get_if<Linear>(&op)) return cuda::make_linear(*device_, *linear, inputs[0]);
  if (const auto* convolution = std::get_if<Convolution>(&op)) {
    return cuda::make_convolution(*device_, *convolution, inputs[0], output);
  }
  if (const auto* pool = std::get_if<MaxPool>(&op)) return cuda::make_max_pool(*device_, *pool, inputs[0], output);
  if (std::holds_alternative<Relu>(op)) return cuda::make_relu(*device_, output);
  throw std::invalid_argument(fmt::format("there is no CUDA kernel for {}", label(op)));
}

std::optional<std::string> what_cuda_lacks(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (!std::holds_alternative<Input>(node.op) && !CudaMath::has_kernel(node.op)) return label(node.op);
  }
  return std::nullopt;
}

}  // namespace clustar::bench::trainer::graph
