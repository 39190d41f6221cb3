#include "bench/trainer/graph/cuda/norm_kernels.h"

#include <cstddef>

#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/cuda/norm_arguments.h"
#include "bench/trainer/graph/norm_kernels.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;

class BatchNormKernel final : public graph::Kernel {
 public:
  BatchNormKernel(Device& device, const Shape& shape)
      : device_(device), positions_(shape.positions()), channels_(shape.channels) {}

  // Per channel: the batch's mean, 1 / deviation, and the means of dy and of dy times the normalised input.
  std::size_t saved(std::size_t) const override { return 4 * channels_; }
  // Per channel: variance, factor and summand of forward, or the sums of backward; and what makes two sums of columns.
  std::size_t scratch(std::size_t batch) const override { return 3 * channels_ + 2 * sums(batch).scratch(); }

  void forward(const ForwardCall& call) override {
    float* const variance = call.scratch;
    float* const factor = variance + channels_;
    float* const summand = factor + channels_;
    if (call.training) measure(call, variance, summand + channels_);
    launch_for(device_, kBatchNormFactors, channels_,
               {.mean = call.training ? call.saved : nullptr,
                .variance = variance,
                .scale = call.parameters[0],
                .shift = call.parameters[1],
                .running_mean = call.states[0],
                .running_variance = call.states[1],
                .inverse = call.training ? call.saved + channels_ : nullptr,
                .factor = factor,
                .summand = summand,
                .rows = rows(call.batch),
                .channels = small(channels_),
                .epsilon = kNormEpsilon,
                .momentum = kBatchNormMomentum});
    const std::size_t count = rows(call.batch) * channels_;
    launch_for(device_, kScaleColumns, count,
               {.x = call.inputs[0],
                .factor = factor,
                .summand = summand,
                .y = call.output,
                .count = count,
                .columns = small(channels_)});
  }

  void backward_parameters(const BackwardCall& call) override {
    const ColumnSums plan = sums(call.batch);
    float* const scale = call.scratch;
    float* const shift = scale + channels_;
    float* const scale_chunks = shift + channels_;
    float* const shift_chunks = scale_chunks + plan.scratch();
    checked(device_.launch(kBatchNormSlopes, plan.grid(),
                           {.x = call.inputs[0],
                            .dy = call.output_gradient,
                            .mean = call.saved,
                            .scale_sums = plan.first(scale, scale_chunks),
                            .shift_sums = plan.first(shift, shift_chunks),
                            .chunks = plan.chunks()}));
    plan.finish(device_, scale, scale_chunks);
    plan.finish(device_, shift, shift_chunks);
    launch_for(device_, kBatchNormTotals, channels_,
               {.scale_sums = scale,
                .shift_sums = shift,
                .inverse = call.saved + channels_,
                .scale_gradient = call.gradients[0],
                .shift_gradient = call.gradients[1],
                .mean_slope = call.saved + 2 * channels_,
                .mean_along = call.saved + 3 * channels_,
                .rows = rows(call.batch),
                .channels = small(channels_)});
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const std::size_t count = rows(call.batch) * channels_;
    launch_for(device_, kBatchNormGradient, count,
               {.x = call.inputs[0],
                .dy = call.output_gradient,
                .scale = call.parameters[0],
                .mean = call.saved,
                .inverse = call.saved + channels_,
                .mean_slope = call.saved + 2 * channels_,
                .mean_along = call.saved + 3 * channels_,
                .dx = call.input_gradients[0],
                .count = count,
                .channels = small(channels_)});
  }

 private:
  std::size_t rows(std::size_t batch) const { return batch * positions_; }
  ColumnSums sums(std::size_t batch) const { return {rows(batch), channels_}; }

  // The batch's mean, to where it is saved, and its biased variance around that.
  void measure(const ForwardCall& call, float* variance, float* chunks) {
    const ColumnSums plan = sums(call.batch);
    const auto count = static_cast<float>(rows(call.batch));
    sum_columns(device_, call.inputs[0], call.saved, rows(call.batch), channels_, chunks, count);
    checked(device_.launch(kBatchNormSquares, plan.grid(),
                           {.x = call.inputs[0],
                            .mean = call.saved,
                            .squares = plan.first(variance, chunks),
                            .chunks = plan.chunks(count)}));
    plan.finish(device_, variance, chunks, count);
  }

  Device& device_;
  std::size_t positions_;
  std::size_t channels_;
};

class LayerNormKernel final : public graph::Kernel {
 public:
  LayerNormKernel(Device& device, const Shape& shape)
      : device_(device), positions_(shape.positions()), channels_(shape.channels) {}

  // Per position: mean, 1 / deviation.
  std::size_t saved(std::size_t batch) const override { return 2 * rows(batch); }
  std::size_t scratch(std::size_t batch) const override { return 2 * ColumnSums(rows(batch), channels_).scratch(); }

  void forward(const ForwardCall& call) override {
    launch_for(device_, kLayerNorm, rows(call.batch) * kWarpThreads,
               {.x = call.inputs[0],
                .scale = call.parameters[0],
                .shift = call.parameters[1],
                .y = call.output,
                .saved = call.training ? call.saved : nullptr,
                .rows = rows(call.batch),
                .channels = small(channels_),
                .epsilon = kNormEpsilon});
  }

  void backward_parameters(const BackwardCall& call) override {
    const ColumnSums plan(rows(call.batch), channels_);
    float* const scale_chunks = call.scratch;
    float* const shift_chunks = scale_chunks + plan.scratch();
    checked(device_.launch(kLayerNormSlopes, plan.grid(),
                           {.x = call.inputs[0],
                            .dy = call.output_gradient,
                            .saved = call.saved,
                            .scale_sums = plan.first(call.gradients[0], scale_chunks),
                            .shift_sums = plan.first(call.gradients[1], shift_chunks),
                            .chunks = plan.chunks()}));
    plan.finish(device_, call.gradients[0], scale_chunks);
    plan.finish(device_, call.gradients[1], shift_chunks);
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    launch_for(device_, kLayerNormGradient, rows(call.batch) * kWarpThreads,
               {.x = call.inputs[0],
                .dy = call.output_gradient,
                .scale = call.parameters[0],
                .saved = call.saved,
                .dx = call.input_gradients[0],
                .rows = rows(call.batch),
                .channels = small(channels_)});
  }

 private:
  std::size_t rows(std::size_t batch) const { return batch * positions_; }

  Device& device_;
  std::size_t positions_;
  std::size_t channels_;
};

}  // namespace

std::unique_ptr<graph::Kernel> make_batch_norm(Device& device, const Shape& shape) {
  return std::make_unique<BatchNormKernel>(device, shape);
}
std::unique_ptr<graph::Kernel> make_layer_norm(Device& device, const Shape& shape) {
  return std::make_unique<LayerNormKernel>(device, shape);
}

}  // namespace clustar::bench::trainer::graph::cuda
