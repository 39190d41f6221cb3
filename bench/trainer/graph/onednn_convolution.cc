#include "bench/trainer/graph/onednn_convolution.h"

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bench/trainer/graph/onednn_runtime.h"

namespace clustar::bench::trainer::graph {
namespace {

using Desc = dnnl::memory::desc;

// Weights in the layout that a primitive wants, which is seldom that of the parameters: in scratch, for one call.
struct Weights {
  Desc desc;
  std::optional<dnnl::reorder> reorder;  // to it, or from it for gradients; null: they are used where they lie
};

// oneDNN pads channels to blocks of 16, 32, 48 or 64.
constexpr std::size_t kMostPadding = 64;

class OneDnnConvolution final : public Kernel {
 public:
  OneDnnConvolution(const Convolution& op, const Shape& in, const Shape& out, std::shared_ptr<OneDnnRuntime> runtime)
      : op_(op), in_(in), out_(out), runtime_(std::move(runtime)) {
    const dnnl::memory::dims dims{dim(op.filters), dim(in.channels), dim(op.kernel), dim(op.kernel)};
    ours_ = Desc(dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ohwi);
    any_ = Desc(dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
    stride_ = {dim(op.stride), dim(op.stride)};
    padding_ = {dim(op.padding), dim(op.padding)};
  }

  std::size_t scratch(std::size_t) const override {
    return (op_.filters + kMostPadding) * (in_.channels + kMostPadding) * op_.kernel * op_.kernel;
  }

  void forward(const ForwardCall& call) override {
    Forward& made = forward_for(call.batch, call.training);
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, runtime_->memory(images(call.batch, in_), call.inputs[0])},
        {DNNL_ARG_WEIGHTS, given(made.weights, call.parameters[0], call.scratch)},
        {DNNL_ARG_DST, runtime_->memory(images(call.batch, out_), call.output)}};
    if (op_.bias) arguments.insert({DNNL_ARG_BIAS, runtime_->memory(vector_of(op_.filters), call.parameters[1])});
    runtime_->run(made.primitive, arguments);
  }

  void backward_parameters(const BackwardCall& call) override {
    BackwardWeights& made = backward_weights_for(call.batch);
    const dnnl::memory own = runtime_->memory(ours_, call.gradients[0]);
    const dnnl::memory wanted = made.weights.reorder ? runtime_->memory(made.weights.desc, call.scratch) : own;
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, runtime_->memory(images(call.batch, in_), call.inputs[0])},
        {DNNL_ARG_DIFF_DST, runtime_->memory(images(call.batch, out_), call.output_gradient)},
        {DNNL_ARG_DIFF_WEIGHTS, wanted}};
    if (op_.bias) arguments.insert({DNNL_ARG_DIFF_BIAS, runtime_->memory(vector_of(op_.filters), call.gradients[1])});
    runtime_->run(made.primitive, arguments);
    if (made.weights.reorder) {
      runtime_->run(*made.weights.reorder, {{DNNL_ARG_FROM, wanted}, {DNNL_ARG_TO, own}});
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    BackwardData& made = backward_data_for(call.batch);
    runtime_->run(made.primitive,
                  {{DNNL_ARG_DIFF_DST, runtime_->memory(images(call.batch, out_), call.output_gradient)},
                   {DNNL_ARG_WEIGHTS, given(made.weights, call.parameters[0], call.scratch)},
                   {DNNL_ARG_DIFF_SRC, runtime_->memory(images(call.batch, in_), call.input_gradients[0])}});
  }

 private:
  // One for each size of batch: primitives are made for exact shapes.
  struct Forward {
    dnnl::convolution_forward primitive;
    Weights weights;
  };
  struct BackwardWeights {
    dnnl::convolution_backward_weights primitive;
    Weights weights;
  };
  struct BackwardData {
    dnnl::convolution_backward_data primitive;
    Weights weights;
  };

  dnnl::convolution_forward::primitive_desc forward_desc(std::size_t batch, bool training) const {
    const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto desc =
        op_.bias ? dnnl::convolution_forward::desc(kind, direct, images(batch, in_), any_, vector_of(op_.filters),
                                                   images(batch, out_), stride_, padding_, padding_)
                 : dnnl::convolution_forward::desc(kind, direct, images(batch, in_), any_, images(batch, out_), stride_,
                                                   padding_, padding_);
    return {desc, runtime_->engine};
  }

  Weights weights(const Desc& wanted, bool gradients) const {
    if (wanted == ours_) return {wanted, {}};
    if (wanted.get_size() > scratch(0) * sizeof(float)) throw std::logic_error("oneDNN wants larger weights");
    const auto& engine = runtime_->engine;
    using Reorder = dnnl::reorder::primitive_desc;
    return {wanted,
            dnnl::reorder(gradients ? Reorder(engine, wanted, engine, ours_) : Reorder(engine, ours_, engine, wanted))};
  }

  // The parameters as the primitive wants them; they change from step to step.
  dnnl::memory given(const Weights& made, const float* parameters, float* scratch) const {
    const dnnl::memory own = runtime_->memory(ours_, parameters);
    if (!made.reorder) return own;
    const dnnl::memory wanted = runtime_->memory(made.desc, scratch);
    runtime_->run(*made.reorder, {{DNNL_ARG_FROM, own}, {DNNL_ARG_TO, wanted}});
    return wanted;
  }

  Forward& forward_for(std::size_t batch, bool training) {
    const auto found = forward_.find({batch, training});
    if (found != forward_.end()) return found->second;
    const auto desc = forward_desc(batch, training);
    Forward made{dnnl::convolution_forward(desc), weights(desc.weights_desc(), false)};
    return forward_.emplace(std::pair{batch, training}, std::move(made)).first->second;
  }

  BackwardWeights& backward_weights_for(std::size_t batch) {
    const auto found = backward_weights_.find(batch);
    if (found != backward_weights_.end()) return found->second;
    using Backward = dnnl::convolution_backward_weights;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto op_desc =
        op_.bias ? Backward::desc(direct, images(batch, in_), any_, vector_of(op_.filters), images(batch, out_),
                                  stride_, padding_, padding_)
                 : Backward::desc(direct, images(batch, in_), any_, images(batch, out_), stride_, padding_, padding_);
    const Backward::primitive_desc desc(op_desc, runtime_->engine, forward_desc(batch, true));
    BackwardWeights made{Backward(desc), weights(desc.diff_weights_desc(), true)};
    return backward_weights_.emplace(batch, std::move(made)).first->second;
  }

  BackwardData& backward_data_for(std::size_t batch) {
    const auto found = backward_data_.find(batch);
    if (found != backward_data_.end()) return found->second;
    using Backward = dnnl::convolution_backward_data;
    const Backward::desc op_desc(dnnl::algorithm::convolution_direct, images(batch, in_), any_, images(batch, out_),
                                 stride_, padding_, padding_);
    const Backward::primitive_desc desc(op_desc, runtime_->engine, forward_desc(batch, true));
    BackwardData made{Backward(desc), weights(desc.weights_desc(), false)};
    return backward_data_.emplace(batch, std::move(made)).first->second;
  }

  Convolution op_;
  Shape in_;
  Shape out_;
  std::shared_ptr<OneDnnRuntime> runtime_;
  Desc ours_;  // weights as the parameters have them: filter, row, column, channel
  Desc any_;
  dnnl::memory::dims stride_;
  dnnl::memory::dims padding_;
  std::map<std::pair<std::size_t, bool>, Forward> forward_;
  std::map<std::size_t, BackwardWeights> backward_weights_;
  std::map<std::size_t, BackwardData> backward_data_;
};

}  // namespace

std::unique_ptr<Kernel> make_onednn_convolution(const Convolution& op, const Shape& in, const Shape& out,
                                                std::shared_ptr<OneDnnRuntime> runtime) {
  return std::make_unique<OneDnnConvolution>(op, in, out, std::move(runtime));
}

}  // namespace clustar::bench::trainer::graph
