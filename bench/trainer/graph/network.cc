#include "bench/trainer/graph/network.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <variant>

#include "transport/base/rng.h"

namespace clustar::bench::trainer::graph {
namespace {

constexpr std::uint64_t kInitialisationStream = 1;

clustar::Rng initialisation_rng(std::uint64_t seed) {
  return clustar::Rng(seed ^ mix64(kInitialisationStream + kGoldenGamma));
}

}  // namespace

Network::Network(const Graph& graph, DeviceMath& math, std::span<const std::size_t> tensor_offsets,
                 std::size_t max_batch, std::uint64_t draws, Precision precision)
    : graph_(graph), math_(math), precision_(precision), draws_(draws) {
  std::size_t tensor = 0;
  std::size_t scratch = 0;
  for (const Node& node : graph.nodes()) {
    Stage stage;
    stage.first_tensor = tensor;
    stage.elements = node.shape.elements();
    stage.output = math.allocate(max_batch * stage.elements);
    for (const TensorSpec& spec : graph.tensors_of(node)) {
      stage.offsets.push_back(tensor_offsets[tensor++]);
      stage.sizes.push_back(spec.elements);
    }
    for (const StateSpec& spec : graph.states_of(node)) state_floats_ += spec.elements;
    if (!node.inputs.empty()) {
      stage.kernel = math.kernel(node.op, graph.input_shapes(node), node.shape);
      stage.saved = math.allocate(stage.kernel->saved(max_batch));
      scratch = std::max(scratch, stage.kernel->scratch(max_batch));
    }
    const auto learns = [&](Value input) { return stages_[input].needs_gradient; };
    stage.needs_gradient = !stage.offsets.empty() || std::any_of(node.inputs.begin(), node.inputs.end(), learns);
    stages_.push_back(std::move(stage));
  }
  scratch_ = math.allocate(scratch);
  states_ = math.allocate(state_floats_);
  float* state = states_.get();
  for (std::size_t n = 0; n < stages_.size(); ++n) {
    for (const StateSpec& spec : graph.states_of(graph.nodes()[n])) {
      math.fill(state, spec.elements, spec.initial);
      stages_[n].states.push_back(state);
      state += spec.elements;
    }
  }
  plan_gradients(max_batch);
  if (precision != Precision::kFloat32) plan_rounding();
}

// What autocast of PyTorch's AMP casts: weights and biases of products of matrices. Scales and shifts of norms, and
// rows of embeddings, are read as they are. Numbers of tokens are no values.
void Network::plan_rounding() {
  const auto multiplies = [](const Op& op) {
    return std::holds_alternative<Linear>(op) || std::holds_alternative<Convolution>(op);
  };
  std::size_t weights = 0;
  rounds_input_ = true;
  for (std::size_t n = 1; n < stages_.size(); ++n) {
    const Node& node = graph_.nodes()[n];
    if (std::holds_alternative<Embedding>(node.op) && node.inputs[0] == 0) rounds_input_ = false;
    if (!multiplies(node.op)) continue;
    for (const std::size_t size : stages_[n].sizes) weights += size;
  }
  rounded_ = math_.allocate(weights);
  float* at = rounded_.get();
  for (std::size_t n = 1; n < stages_.size(); ++n) {
    if (!multiplies(graph_.nodes()[n].op)) continue;
    for (const std::size_t size : stages_[n].sizes) {
      stages_[n].rounded.push_back(at);
      at += size;
    }
  }
}

void Network::round(float* values, std::size_t count) {
  if (precision_ != Precision::kFloat32) math_.round(values, values, count, precision_);
}

void Network::round_parameters(const Stage& stage, const float* parameters) {
  for (std::size_t t = 0; t < stage.rounded.size(); ++t) {
    math_.round(stage.rounded[t], parameters + stage.offsets[t], stage.sizes[t], precision_);
  }
}

// As its kernel reads them: in backward, as forward rounded them.
std::vector<const float*> Network::parameters_of(const Stage& stage, const float* parameters) const {
  if (stage.rounded.empty()) return tensor_pointers(stage, parameters);
  return {stage.rounded.begin(), stage.rounded.end()};
}

// Walks as backward() will: a value's buffer is taken when its last user writes into it.
void Network::plan_gradients(std::size_t max_batch) {
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> free;
  std::vector<bool> has(stages_.size());
  std::size_t partial = 0;
  const auto take = [&](std::size_t floats) {
    // The smallest that fits, otherwise the largest, which grows.
    const auto better = [&](std::size_t a, std::size_t b) {
      const bool a_fits = sizes[a] >= floats;
      const bool b_fits = sizes[b] >= floats;
      return a_fits != b_fits ? a_fits : a_fits ? sizes[a] < sizes[b] : sizes[a] > sizes[b];
    };
    const auto best = std::min_element(free.begin(), free.end(), better);
    if (best == free.end()) {
      sizes.push_back(floats);
      return sizes.size() - 1;
    }
    const std::size_t buffer = *best;
    free.erase(best);
    sizes[buffer] = std::max(sizes[buffer], floats);
    return buffer;
  };
  has.back() = true;
  stages_.back().gradient_buffer = take(max_batch * stages_.back().elements);
  for (std::size_t n = stages_.size(); n-- > 1;) {
    for (const Value input : graph_.nodes()[n].inputs) {
      Stage& from = stages_[input];
      if (!from.needs_gradient) continue;
      if (has[input]) {
        partial = std::max(partial, max_batch * from.elements);
      } else {
        from.gradient_buffer = take(max_batch * from.elements);
        has[input] = true;
      }
    }
    if (!stages_[n].needs_gradient) continue;
    if (!has[n]) throw std::invalid_argument(graph_.nodes()[n].name + ": nobody uses what this node makes");
    free.push_back(stages_[n].gradient_buffer);
  }
  for (const std::size_t size : sizes) gradient_buffers_.push_back(math_.allocate(size));
  partial_ = math_.allocate(partial);
}

template <class Float>
std::vector<Float*> Network::tensor_pointers(const Stage& stage, Float* base) {
  std::vector<Float*> pointers;
  for (const std::size_t offset : stage.offsets) pointers.push_back(base + offset);
  return pointers;
}

std::vector<const float*> Network::input_pointers(std::size_t node) const {
  std::vector<const float*> pointers;
  for (const Value input : graph_.nodes()[node].inputs) pointers.push_back(stages_[input].output.get());
  return pointers;
}

void Network::set_tensor_offsets(std::span<const std::size_t> tensor_offsets) {
  for (Stage& stage : stages_) {
    for (std::size_t t = 0; t < stage.offsets.size(); ++t) stage.offsets[t] = tensor_offsets[stage.first_tensor + t];
  }
}

void Network::initialise(std::span<float> parameters, std::uint64_t seed) const {
  clustar::Rng rng = initialisation_rng(seed);
  for (std::size_t n = 1; n < stages_.size(); ++n) {
    const Node& node = graph_.nodes()[n];
    graph::initialise(node.op, graph_.nodes()[node.inputs[0]].shape, tensor_pointers(stages_[n], parameters.data()),
                      rng);
  }
}

std::span<const float> Network::forward(const float* parameters, const float* x, std::size_t batch,
                                        const Needs& needs) {
  batch_ = batch;
  ++passes_;
  return run(parameters, x, batch, true, needs);
}

std::span<const float> Network::evaluate(const float* parameters, const float* x, std::size_t batch) {
  return run(parameters, x, batch, false, {});
}

std::span<const float> Network::run(const float* parameters, const float* x, std::size_t batch, bool training,
                                    const Needs& needs) {
  outputs_.resize(batch * stages_.back().elements);
  if (batch > 0) math_.upload(stages_[0].output.get(), x, batch * stages_[0].elements);
  if (rounds_input_) round(stages_[0].output.get(), batch * stages_[0].elements);
  for (std::size_t n = 1; n < stages_.size(); ++n) {
    Stage& stage = stages_[n];
    if (needs && !stage.offsets.empty()) needs(stage.first_tensor, stage.offsets.size());
    if (batch == 0) continue;
    const std::vector<const float*> own = parameters_of(stage, parameters);
    const std::vector<const float*> inputs = input_pointers(n);
    const ForwardCall call{.batch = batch,
                           .training = training,
                           .draw = mix64(mix64(draws_ + passes_ * kGoldenGamma) + n * kGoldenGamma),
                           .inputs = inputs,
                           .output = stage.output.get(),
                           .parameters = own,
                           .states = stage.states,
                           .saved = training ? stage.saved.get() : nullptr,
                           .scratch = scratch_.get()};
    const auto compute = [&] {
      round_parameters(stage, parameters);
      stage.kernel->forward(call);
      round(stage.output.get(), batch * stage.elements);
    };
    if (training) {
      timed(n, Pass::kForward, compute);
    } else {
      compute();
    }
  }
  math_.download(outputs_.data(), stages_.back().output.get(), outputs_.size());
  return outputs_;
}

void Network::zero_gradients(float* gradients, const std::function<void(std::size_t tensor)>& ready) {
  for (std::size_t n = stages_.size(); n-- > 1;) {
    const Stage& stage = stages_[n];
    for (std::size_t t = stage.offsets.size(); t-- > 0;) {
      math_.fill(gradients + stage.offsets[t], stage.sizes[t], 0);
      ready(stage.first_tensor + t);
    }
  }
}

void Network::backward(const float* parameters, std::span<const float> output_gradient, float* gradients,
                       const std::function<void(std::size_t tensor)>& ready) {
  if (batch_ == 0) return zero_gradients(gradients, ready);
  math_.upload(gradient_buffers_[stages_.back().gradient_buffer].get(), output_gradient.data(), output_gradient.size());
  round(gradient_buffers_[stages_.back().gradient_buffer].get(), output_gradient.size());
  std::vector<bool> written(stages_.size());
  written.back() = true;
  for (std::size_t n = stages_.size(); n-- > 1;) {
    const Stage& stage = stages_[n];
    if (!stage.needs_gradient) continue;
    const std::vector<const float*> own = parameters_of(stage, parameters);
    const std::vector<float*> own_gradients = tensor_pointers(stage, gradients);
    const std::vector<const float*> inputs = input_pointers(n);
    run_backward(n,
                 {.batch = batch_,
                  .inputs = inputs,
                  .output = stage.output.get(),
                  .output_gradient = gradient_buffers_[stage.gradient_buffer].get(),
                  .input_gradients = {},
                  .parameters = own,
                  .gradients = own_gradients,
                  .saved = stage.saved.get(),
                  .scratch = scratch_.get()},
                 written, ready);
  }
}

// One node. What it says of an input that others have used, too, is added to theirs.
void Network::run_backward(std::size_t n, const BackwardCall& call, std::vector<bool>& written,
                           const std::function<void(std::size_t tensor)>& ready) {
  Stage& stage = stages_[n];
  const std::vector<Value>& inputs = graph_.nodes()[n].inputs;
  std::vector<float*> targets(inputs.size());
  std::vector<Value> to_add;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Stage& from = stages_[inputs[i]];
    if (!from.needs_gradient) continue;
    if (written[inputs[i]]) to_add.push_back(inputs[i]);
    targets[i] = written[inputs[i]] ? partial_.get() : gradient_buffers_[from.gradient_buffer].get();
    written[inputs[i]] = true;
  }
  BackwardCall whole = call;
  whole.input_gradients = targets;
  timed(n, Pass::kParameterGradients, [&] {
    stage.kernel->backward_parameters(whole);
    for (std::size_t t = 0; t < stage.sizes.size(); ++t) round(call.gradients[t], stage.sizes[t]);
  });
  for (std::size_t t = stage.offsets.size(); t-- > 0;) ready(stage.first_tensor + t);
  timed(n, Pass::kInputGradients, [&] {
    stage.kernel->backward_inputs(whole);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] != nullptr) round(targets[i], call.batch * stages_[inputs[i]].elements);
    }
    for (const Value value : to_add) {
      float* const sum = gradient_buffers_[stages_[value].gradient_buffer].get();
      math_.add(sum, partial_.get(), call.batch * stages_[value].elements);
      round(sum, call.batch * stages_[value].elements);
    }
  });
}

void Network::timed(std::size_t node, Pass pass, const std::function<void()>& work) const {
  if (!observer_) return work();
  const auto begin = std::chrono::steady_clock::now();
  work();
  observer_(node, pass, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

std::vector<float> Network::state() const {
  std::vector<float> state(state_floats_);
  math_.download(state.data(), states_.get(), state.size());
  return state;
}

void Network::set_state(std::span<const float> state) { math_.upload(states_.get(), state.data(), state.size()); }

}  // namespace clustar::bench::trainer::graph
