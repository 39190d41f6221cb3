#include "bench/trainer/graph/onednn_kernels.h"

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "bench/trainer/graph/norm_kernels.h"
#include "bench/trainer/graph/onednn_runtime.h"

namespace clustar::bench::trainer::graph {
namespace {

constexpr auto kTraining = dnnl::prop_kind::forward_training;
constexpr auto kInference = dnnl::prop_kind::forward_inference;

// What `make` makes for `key`, made once.
template <class Map, class Make>
auto& once(Map& map, const typename Map::key_type& key, const Make& make) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : map.emplace(key, make()).first->second;
}

class OneDnnMaxPool final : public Kernel {
 public:
  OneDnnMaxPool(const MaxPool& op, const Shape& in, const Shape& out, std::shared_ptr<OneDnnRuntime> runtime)
      : in_(in),
        out_(out),
        runtime_(std::move(runtime)),
        window_{dim(op.window), dim(op.window)},
        stride_{dim(op.stride), dim(op.stride)},
        padding_{dim(op.padding), dim(op.padding)} {}

  // oneDNN's notes of where each value came from.
  std::size_t saved(std::size_t batch) const override {
    return (desc(batch, kTraining).workspace_desc().get_size() + sizeof(float) - 1) / sizeof(float);
  }

  void forward(const ForwardCall& call) override {
    auto& made = once(forward_, {call.batch, call.training}, [&] {
      const auto one = desc(call.batch, call.training ? kTraining : kInference);
      return Forward{dnnl::pooling_forward(one), one.workspace_desc()};
    });
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, runtime_->memory(images(call.batch, in_), call.inputs[0])},
        {DNNL_ARG_DST, runtime_->memory(images(call.batch, out_), call.output)}};
    if (call.training) arguments.insert({DNNL_ARG_WORKSPACE, runtime_->memory(made.workspace, call.saved)});
    runtime_->run(made.primitive, arguments);
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    auto& made = once(backward_, call.batch, [&] {
      const auto forward = desc(call.batch, kTraining);
      const dnnl::pooling_backward::desc one(dnnl::algorithm::pooling_max, images(call.batch, in_),
                                             images(call.batch, out_), stride_, window_, padding_, padding_);
      return Backward{dnnl::pooling_backward(dnnl::pooling_backward::primitive_desc(one, runtime_->engine, forward)),
                      forward.workspace_desc()};
    });
    runtime_->run(made.primitive,
                  {{DNNL_ARG_DIFF_DST, runtime_->memory(images(call.batch, out_), call.output_gradient)},
                   {DNNL_ARG_WORKSPACE, runtime_->memory(made.workspace, call.saved)},
                   {DNNL_ARG_DIFF_SRC, runtime_->memory(images(call.batch, in_), call.input_gradients[0])}});
  }

 private:
  struct Forward {
    dnnl::pooling_forward primitive;
    dnnl::memory::desc workspace;
  };
  struct Backward {
    dnnl::pooling_backward primitive;
    dnnl::memory::desc workspace;
  };
  dnnl::pooling_forward::primitive_desc desc(std::size_t batch, dnnl::prop_kind kind) const {
    return {dnnl::pooling_forward::desc(kind, dnnl::algorithm::pooling_max, images(batch, in_), images(batch, out_),
                                        stride_, window_, padding_, padding_),
            runtime_->engine};
  }

  Shape in_;
  Shape out_;
  std::shared_ptr<OneDnnRuntime> runtime_;
  dnnl::memory::dims window_;
  dnnl::memory::dims stride_;
  dnnl::memory::dims padding_;
  std::map<std::pair<std::size_t, bool>, Forward> forward_;
  std::map<std::size_t, Backward> backward_;
};

class OneDnnBatchNorm final : public Kernel {
 public:
  OneDnnBatchNorm(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime)
      : shape_(shape), runtime_(std::move(runtime)) {}

  // Per channel: mean and variance of the batch.
  std::size_t saved(std::size_t) const override { return 2 * shape_.channels; }

  void forward(const ForwardCall& call) override {
    auto& primitive = once(forward_, {call.batch, call.training},
                           [&] { return dnnl::batch_normalization_forward(desc(call.batch, call.training)); });
    const float* mean = call.training ? call.saved : call.states[0];
    const float* variance = call.training ? call.saved + shape_.channels : call.states[1];
    runtime_->run(primitive, {{DNNL_ARG_SRC, runtime_->memory(images(call.batch, shape_), call.inputs[0])},
                              {DNNL_ARG_SCALE, channels(call.parameters[0])},
                              {DNNL_ARG_SHIFT, channels(call.parameters[1])},
                              {DNNL_ARG_MEAN, channels(mean)},
                              {DNNL_ARG_VARIANCE, channels(variance)},
                              {DNNL_ARG_DST, runtime_->memory(images(call.batch, shape_), call.output)}});
    if (call.training) {
      update_running(call.states, mean, variance, shape_.channels, call.batch * shape_.positions());
    }
  }

  // All at once: oneDNN sums over the batch once for both.
  void backward_parameters(const BackwardCall& call) override {
    auto& primitive = once(backward_, call.batch, [&] {
      const dnnl::memory::desc values = images(call.batch, shape_);
      const dnnl::batch_normalization_backward::desc one(dnnl::prop_kind::backward, values, values, kNormEpsilon,
                                                         flags(true));
      return dnnl::batch_normalization_backward(
          dnnl::batch_normalization_backward::primitive_desc(one, runtime_->engine, desc(call.batch, true)));
    });
    float* dx = call.input_gradients[0];
    if (dx == nullptr) {
      unwanted_.resize(call.batch * shape_.elements());
      dx = unwanted_.data();
    }
    const dnnl::memory::desc values = images(call.batch, shape_);
    runtime_->run(primitive, {{DNNL_ARG_SRC, runtime_->memory(values, call.inputs[0])},
                              {DNNL_ARG_MEAN, channels(call.saved)},
                              {DNNL_ARG_VARIANCE, channels(call.saved + shape_.channels)},
                              {DNNL_ARG_DIFF_DST, runtime_->memory(values, call.output_gradient)},
                              {DNNL_ARG_SCALE, channels(call.parameters[0])},
                              {DNNL_ARG_SHIFT, channels(call.parameters[1])},
                              {DNNL_ARG_DIFF_SRC, runtime_->memory(values, dx)},
                              {DNNL_ARG_DIFF_SCALE, channels(call.gradients[0])},
                              {DNNL_ARG_DIFF_SHIFT, channels(call.gradients[1])}});
  }
  void backward_inputs(const BackwardCall&) override {}

 private:
  static dnnl::normalization_flags flags(bool training) {
    const auto scale_and_shift = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    return training ? scale_and_shift : scale_and_shift | dnnl::normalization_flags::use_global_stats;
  }

  dnnl::batch_normalization_forward::primitive_desc desc(std::size_t batch, bool training) const {
    return {dnnl::batch_normalization_forward::desc(training ? kTraining : kInference, images(batch, shape_),
                                                    kNormEpsilon, flags(training)),
            runtime_->engine};
  }
  dnnl::memory channels(const float* values) const { return runtime_->memory(vector_of(shape_.channels), values); }

  Shape shape_;
  std::shared_ptr<OneDnnRuntime> runtime_;
  std::vector<float> unwanted_;
  std::map<std::pair<std::size_t, bool>, dnnl::batch_normalization_forward> forward_;
  std::map<std::size_t, dnnl::batch_normalization_backward> backward_;
};

// An activation, element by element. ReLU's gradient is told by the output, GELU's by the input.
class OneDnnActivation final : public Kernel {
 public:
  OneDnnActivation(dnnl::algorithm algorithm, std::size_t width, std::shared_ptr<OneDnnRuntime> runtime)
      : algorithm_(algorithm), width_(width), runtime_(std::move(runtime)) {}

  void forward(const ForwardCall& call) override {
    auto& primitive = once(forward_, call.batch, [&] { return dnnl::eltwise_forward(desc(call.batch)); });
    const dnnl::memory::desc values = vector_of(call.batch * width_);
    runtime_->run(primitive, {{DNNL_ARG_SRC, runtime_->memory(values, call.inputs[0])},
                              {DNNL_ARG_DST, runtime_->memory(values, call.output)}});
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const dnnl::memory::desc values = vector_of(call.batch * width_);
    auto& primitive = once(backward_, call.batch, [&] {
      const dnnl::eltwise_backward::desc one(algorithm_, values, values, 0.0f, 0.0f);
      return dnnl::eltwise_backward(dnnl::eltwise_backward::primitive_desc(one, runtime_->engine, desc(call.batch)));
    });
    const bool by_output = algorithm_ == dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
    runtime_->run(primitive, {by_output ? std::pair{DNNL_ARG_DST, runtime_->memory(values, call.output)}
                                        : std::pair{DNNL_ARG_SRC, runtime_->memory(values, call.inputs[0])},
                              {DNNL_ARG_DIFF_DST, runtime_->memory(values, call.output_gradient)},
                              {DNNL_ARG_DIFF_SRC, runtime_->memory(values, call.input_gradients[0])}});
  }

 private:
  dnnl::eltwise_forward::primitive_desc desc(std::size_t batch) const {
    return {dnnl::eltwise_forward::desc(kTraining, algorithm_, vector_of(batch * width_), 0.0f, 0.0f),
            runtime_->engine};
  }

  dnnl::algorithm algorithm_;
  std::size_t width_;
  std::shared_ptr<OneDnnRuntime> runtime_;
  std::map<std::size_t, dnnl::eltwise_forward> forward_;
  std::map<std::size_t, dnnl::eltwise_backward> backward_;
};

}  // namespace

std::unique_ptr<Kernel> make_onednn_max_pool(const MaxPool& op, const Shape& in, const Shape& out,
                                             std::shared_ptr<OneDnnRuntime> runtime) {
  return std::make_unique<OneDnnMaxPool>(op, in, out, std::move(runtime));
}

std::unique_ptr<Kernel> make_onednn_batch_norm(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime) {
  return std::make_unique<OneDnnBatchNorm>(shape, std::move(runtime));
}

std::unique_ptr<Kernel> make_onednn_relu(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime) {
  return std::make_unique<OneDnnActivation>(dnnl::algorithm::eltwise_relu_use_dst_for_bwd, shape.elements(),
                                            std::move(runtime));
}

std::unique_ptr<Kernel> make_onednn_gelu(const Shape& shape, std::shared_ptr<OneDnnRuntime> runtime) {
  return std::make_unique<OneDnnActivation>(dnnl::algorithm::eltwise_gelu_tanh, shape.elements(), std::move(runtime));
}

}  // namespace clustar::bench::trainer::graph
