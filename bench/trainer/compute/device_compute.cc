#include "bench/trainer/compute/device_compute.h"

namespace clustar::bench::trainer {

DeviceCompute::DeviceCompute(const Model& model, const BucketPlan& plan, graph::CudaMath& math,
                             const NetworkCompute::Options& options)
    : math_(math),
      offsets_(plan.tensor_offset),
      sizes_(plan.tensor_elements),
      parameters_(math.allocate(plan.capacity())),
      gradients_(math.allocate(plan.capacity())),
      network_(model, plan, math, options) {}

void DeviceCompute::set_tensor_offsets(std::span<const std::size_t> offsets) {
  offsets_.assign(offsets.begin(), offsets.end());
  network_.set_tensor_offsets(offsets);
}

void DeviceCompute::upload(const float* parameters, std::size_t first_tensor, std::size_t count) {
  for (std::size_t tensor = first_tensor; tensor < first_tensor + count; ++tensor) {
    math_.upload(parameters_.get() + offsets_[tensor], parameters + offsets_[tensor], sizes_[tensor]);
  }
}

void DeviceCompute::forward(const float* parameters, std::span<const float> x, std::size_t examples,
                            const Needs& needs) {
  network_.forward(parameters_.get(), x, examples, [&](std::size_t first_tensor, std::size_t count) {
    if (needs) needs(first_tensor, count);
    if (momentum_ == nullptr) upload(parameters, first_tensor, count);
  });
}

LossSum DeviceCompute::backward(const float*, std::span<const std::uint16_t> labels, float scale, float* gradients,
                                const Ready& ready) {
  return network_.backward(parameters_.get(), labels, scale, gradients_.get(), [&](std::size_t tensor) {
    if (momentum_ == nullptr) {
      math_.download(gradients + offsets_[tensor], gradients_.get() + offsets_[tensor], sizes_[tensor]);
    }
    ready(tensor);
  });
}

LossSum DeviceCompute::evaluate(const float* parameters, std::span<const float> x,
                                std::span<const std::uint16_t> labels, std::size_t examples) {
  if (momentum_ == nullptr) upload(parameters, 0, sizes_.size());
  return network_.evaluate(parameters_.get(), x, labels, examples);
}

void DeviceCompute::take(std::span<const float> parameters) {
  momentum_ = math_.allocate(parameters.size());
  math_.upload(parameters_.get(), parameters.data(), parameters.size());
}

void DeviceCompute::set(std::span<const float> parameters, std::span<const float> momentum) {
  math_.upload(parameters_.get(), parameters.data(), parameters.size());
  math_.upload(momentum_.get(), momentum.data(), momentum.size());
}

void DeviceCompute::copy_parameters(std::span<float> host) {
  math_.download(host.data(), parameters_.get(), host.size());
}

void DeviceCompute::copy_momentum(std::span<float> host) { math_.download(host.data(), momentum_.get(), host.size()); }

void DeviceCompute::update(const SgdOptions& options, std::size_t first, std::size_t count) {
  math_.sgd({.parameters = parameters_.get() + first,
             .gradients = gradients_.get() + first,
             .velocity = momentum_.get() + first,
             .count = count,
             .rate = options.rate,
             .momentum = options.momentum,
             .weight_decay = options.weight_decay});
}

}  // namespace clustar::bench::trainer
