#include "bench/trainer/graph/cuda/libraries/cudnn_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "bench/trainer/graph/cuda/launches.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;

// What one of the three calls is asked for, and how.
struct Direction {
  const char* name;
  CudnnCalls::Algorithms algorithms;
  CudnnCalls::WorkspaceSize workspace;
  CudnnCalls::Convolve convolve;
};

struct Operand {
  void* descriptor;
  const float* values;
};

struct Plan {
  bool found = false;
  int algorithm = 0;
  std::size_t workspace = 0;  // bytes
};

// Descriptors and choices of one size of batch.
struct Batch {
  Cudnn::Descriptor x;
  Cudnn::Descriptor y;
  std::optional<Plan> forward{}, data{}, filter{};
};

constexpr int kMostAlgorithms = 16;  // cuDNN has at most eight for a direction

class CudnnConvolutionKernel final : public graph::Kernel {
 public:
  CudnnConvolutionKernel(Cudnn& cudnn, const Convolution& op, const Shape& in, const Shape& out,
                         std::unique_ptr<graph::Kernel> otherwise)
      : cudnn_(cudnn),
        otherwise_(std::move(otherwise)),
        op_(op),
        in_(in),
        out_(out),
        filter_(cudnn.filter(op.filters, in.channels, op.kernel)),
        convolution_(cudnn.convolution(op.stride, op.padding)) {}

  std::size_t scratch(std::size_t batch) const override {
    const std::size_t sums = op_.bias ? ColumnSums(batch * out_.positions(), op_.filters).scratch() : 0;
    return std::max(sums, otherwise_->scratch(batch));
  }

  void forward(const ForwardCall& call) override {
    const CudnnCalls& calls = cudnn_.calls();
    Batch& batch = of(call.batch);
    const bool done = run({"cudnnConvolutionForward", calls.forward_algorithms, calls.forward_workspace, calls.forward},
                          batch.forward, {batch.x.get(), call.inputs[0]}, {filter_.get(), call.parameters[0]},
                          batch.y.get(), call.output, call.batch);
    if (!done) return otherwise_->forward(call);
    if (op_.bias) {
      add_bias(cudnn_.device(), call.output, call.parameters[1], call.batch * out_.positions(), op_.filters);
    }
  }

  void backward_parameters(const BackwardCall& call) override {
    const CudnnCalls& calls = cudnn_.calls();
    Batch& batch = of(call.batch);
    const bool done =
        run({"cudnnConvolutionBackwardFilter", calls.filter_algorithms, calls.filter_workspace, calls.backward_filter},
            batch.filter, {batch.x.get(), call.inputs[0]}, {batch.y.get(), call.output_gradient}, filter_.get(),
            call.gradients[0], call.batch);
    if (!done) return otherwise_->backward_parameters(call);
    if (op_.bias) {
      sum_columns(cudnn_.device(), call.output_gradient, call.gradients[1], call.batch * out_.positions(), op_.filters,
                  call.scratch);
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const CudnnCalls& calls = cudnn_.calls();
    Batch& batch = of(call.batch);
    const bool done =
        run({"cudnnConvolutionBackwardData", calls.data_algorithms, calls.data_workspace, calls.backward_data},
            batch.data, {filter_.get(), call.parameters[0]}, {batch.y.get(), call.output_gradient}, batch.x.get(),
            call.input_gradients[0], call.batch);
    if (!done) otherwise_->backward_inputs(call);
  }

 private:
  Batch& of(std::size_t images) {
    const auto found = batches_.find(images);
    if (found != batches_.end()) return found->second;
    Batch made{.x = cudnn_.tensor(images, in_.channels, in_.rows, in_.columns),
               .y = cudnn_.tensor(images, out_.channels, out_.rows, out_.columns)};
    return batches_.emplace(images, std::move(made)).first->second;
  }

  std::string call_text(const char* name, std::size_t images) const {
    return fmt::format("{} of {} on {}x{}x{}x{}", name, label(op_), images, in_.rows, in_.columns, in_.channels);
  }

  Plan choose(const Direction& direction, void* first, void* second, void* result, std::size_t images) const {
    std::array<CudnnAlgorithm, kMostAlgorithms> all{};
    int count = 0;
    const int asked = direction.algorithms(cudnn_.handle(), first, second, convolution_.get(), result, kMostAlgorithms,
                                           &count, all.data());
    if (asked == kCudnnNotSupported || asked == kCudnn8NotSupported) return {};
    if (asked != kCudnnSuccess) {
      cudnn_.checked(asked, "the choice of an algorithm for " + call_text(direction.name, images));
    }
    for (int i = 0; i < count; ++i) {
      const CudnnAlgorithm& one = all[static_cast<std::size_t>(i)];
      const bool float32 = one.math == kCudnnDefaultMath || one.math == kCudnnFmaMath;
      if (one.status != kCudnnSuccess || one.determinism != kCudnnDeterministic || !float32) continue;
      Plan plan{.found = true, .algorithm = one.algorithm};
      const int sized = direction.workspace(cudnn_.handle(), first, second, convolution_.get(), result, one.algorithm,
                                            &plan.workspace);
      if (sized == kCudnnSuccess && plan.workspace <= kMostWorkspace) return plan;
    }
    return {};
  }

  // False: cuDNN has no algorithm for it.
  bool run(const Direction& direction, std::optional<Plan>& plan, const Operand& first, const Operand& second,
           void* result_descriptor, float* result, std::size_t images) {
    const Device::InContext here(cudnn_.device());
    if (!plan) plan = choose(direction, first.descriptor, second.descriptor, result_descriptor, images);
    if (!plan->found) return false;
    const float one = 1;
    const float zero = 0;
    const int status = direction.convolve(
        cudnn_.handle(), &one, first.descriptor, first.values, second.descriptor, second.values, convolution_.get(),
        plan->algorithm, cudnn_.workspace(plan->workspace), plan->workspace, &zero, result_descriptor, result);
    if (status != kCudnnSuccess) cudnn_.checked(status, call_text(direction.name, images));
    return true;
  }

  Cudnn& cudnn_;
  std::unique_ptr<graph::Kernel> otherwise_;
  Convolution op_;
  Shape in_;
  Shape out_;
  Cudnn::Descriptor filter_;
  Cudnn::Descriptor convolution_;
  std::map<std::size_t, Batch> batches_;  // by their images: a run has few sizes
};

}  // namespace

std::unique_ptr<graph::Kernel> make_cudnn_convolution(Cudnn& cudnn, const Convolution& op, const Shape& in,
                                                      const Shape& out, std::unique_ptr<graph::Kernel> otherwise) {
  return std::make_unique<CudnnConvolutionKernel>(cudnn, op, in, out, std::move(otherwise));
}

}  // namespace clustar::bench::trainer::graph::cuda
