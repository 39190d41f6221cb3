#include "bench/trainer/graph/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace clustar::bench::trainer::graph {
namespace {

template <class... Fs>
struct Cases : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Cases(Fs...) -> Cases<Fs...>;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// How many windows fit on a side.
std::size_t windows(const char* what, std::size_t side, std::size_t window, std::size_t stride, std::size_t padding) {
  const std::size_t padded = side + 2 * padding;
  if (window == 0 || stride == 0 || window > padded) {
    refuse(fmt::format("a {} of {} by steps of {} does not fit a side of {} with its padding; allowed: 1 to {}", what,
                       window, stride, padded, padded));
  }
  return (padded - window) / stride + 1;
}

Shape windowed(const char* what, const Shape& in, std::size_t window, std::size_t stride, std::size_t padding,
               std::size_t channels) {
  return {windows(what, in.rows, window, stride, padding), windows(what, in.columns, window, stride, padding),
          channels};
}

Shape shape_of(const Linear& op, const Shape& in) {
  if (op.outputs == 0) refuse("a linear layer needs at least one output");
  return op.per_position ? Shape{in.rows, in.columns, op.outputs} : Shape{1, 1, op.outputs};
}
Shape shape_of(const Convolution& op, const Shape& in) {
  if (op.filters == 0) refuse("a convolution needs at least one filter");
  return windowed("convolution kernel", in, op.kernel, op.stride, op.padding, op.filters);
}
Shape shape_of(const MaxPool& op, const Shape& in) {
  if (2 * op.padding > op.window) refuse("a pooling window has padding for at most half of it");
  return windowed("pooling window", in, op.window, op.stride, op.padding, in.channels);
}
Shape shape_of(const AdaptiveAveragePool& op, const Shape& in) {
  if (op.rows == 0 || op.columns == 0) refuse("adaptive pooling makes at least one row and one column");
  return {op.rows, op.columns, in.channels};
}
Shape shape_of(const Dropout& op, const Shape& in) {
  if (!(op.probability >= 0 && op.probability < 1)) {
    refuse(fmt::format("dropout with probability {}; allowed: 0 or more, below 1", op.probability));
  }
  return in;
}
Shape shape_of(const Embedding& op, const Shape& in) {
  if (in.columns != 1 || in.channels != 1) refuse("an embedding takes one number per token");
  if (op.vocabulary == 0 || op.width == 0) refuse("an embedding needs words and a width");
  return {in.rows, 1, op.width};
}
Shape shape_of(const Attention& op, const Shape& in) {
  if (op.heads == 0 || in.columns != 1 || in.channels % (3 * op.heads) != 0) {
    refuse(fmt::format("{} heads do not divide {} x {} channels of queries, keys and values", op.heads, in.columns,
                       in.channels));
  }
  return {in.rows, 1, in.channels / 3};
}
template <class Same>
Shape shape_of(const Same&, const Shape& in) {
  return in;
}

void fill(float* values, std::size_t count, double bound, clustar::Rng& rng) {
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(-bound + (bound - -bound) * rng.uniform());
}

void start_weights(std::span<float* const> parameters, std::size_t outputs, std::size_t inputs, bool bias,
                   double deviation, clustar::Rng& rng) {
  const double bound = deviation > 0 ? std::sqrt(3.0) * deviation : 1 / std::sqrt(static_cast<double>(inputs));
  fill(parameters[0], outputs * inputs, bound, rng);
  if (!bias) return;
  if (deviation > 0) {
    std::fill_n(parameters[1], outputs, 0.0f);
  } else {
    fill(parameters[1], outputs, bound, rng);
  }
}

std::vector<TensorSpec> weights(std::size_t outputs, std::size_t inputs, bool bias) {
  std::vector<TensorSpec> all{{"weight", outputs * inputs, inputs}};
  if (bias) all.push_back({"bias", outputs, 1});
  return all;
}

std::size_t linear_inputs(const Linear& op, const Shape& in) { return op.per_position ? in.channels : in.elements(); }
std::size_t window_elements(const Convolution& op, const Shape& in) { return op.kernel * op.kernel * in.channels; }

constexpr double kEmbeddingDeviation = 0.02;  // GPT-2's

std::string steps(std::size_t stride, std::size_t padding) {
  return (stride != 1 ? fmt::format(", stride {}", stride) : "") +
         (padding != 0 ? fmt::format(", padding {}", padding) : "");
}

}  // namespace

std::string label(const Op& op) {
  return std::visit(
      Cases{[](const Input&) { return std::string("input"); },
            [](const Linear& o) { return fmt::format("linear {}{}", o.outputs, o.bias ? "" : ", no bias"); },
            [](const Convolution& o) {
              return fmt::format("conv {}x{}x{}{}{}", o.kernel, o.kernel, o.filters, steps(o.stride, o.padding),
                                 o.bias ? "" : ", no bias");
            },
            [](const MaxPool& o) { return fmt::format("max pool {}{}", o.window, steps(o.stride, o.padding)); },
            [](const AdaptiveAveragePool& o) { return fmt::format("average pool to {}x{}", o.rows, o.columns); },
            [](const BatchNorm&) { return std::string("batch norm"); },
            [](const LayerNorm&) { return std::string("layer norm"); }, [](const Relu&) { return std::string("relu"); },
            [](const Gelu&) { return std::string("gelu"); },
            [](const Dropout& o) { return fmt::format("dropout {}", o.probability); },
            [](const Add&) { return std::string("add"); },
            [](const Embedding& o) { return fmt::format("embedding {} of {}", o.width, o.vocabulary); },
            [](const Attention& o) { return fmt::format("causal attention, {} heads", o.heads); }},
      op);
}

Shape output_shape(const Op& op, std::span<const Shape> inputs) {
  const std::size_t wanted = std::holds_alternative<Add>(op) ? 2 : 1;
  if (inputs.size() != wanted) refuse(fmt::format("{} takes {} inputs, not {}", label(op), wanted, inputs.size()));
  if (wanted == 2 && inputs[0] != inputs[1]) refuse("only values of one shape can be added");
  return std::visit([&](const auto& one) { return shape_of(one, inputs[0]); }, op);
}

std::vector<TensorSpec> tensors(const Op& op, const Shape& in) {
  using Tensors = std::vector<TensorSpec>;
  const auto scale_and_shift = [&](const auto&) -> Tensors {
    return {{"weight", in.channels, 1}, {"bias", in.channels, 1}};
  };
  return std::visit(
      Cases{[&](const Linear& o) -> Tensors { return weights(o.outputs, linear_inputs(o, in), o.bias); },
            [&](const Convolution& o) -> Tensors { return weights(o.filters, window_elements(o, in), o.bias); },
            [&](const BatchNorm& o) -> Tensors { return scale_and_shift(o); },
            [&](const LayerNorm& o) -> Tensors { return scale_and_shift(o); },
            [&](const Embedding& o) -> Tensors {
              return {{"tokens", o.vocabulary * o.width, o.width}, {"places", in.rows * o.width, o.width}};
            },
            [](const auto&) -> Tensors { return {}; }},
      op);
}

std::vector<StateSpec> states(const Op& op, const Shape& in) {
  if (!std::holds_alternative<BatchNorm>(op)) return {};
  return {{"running_mean", in.channels, 0.0f}, {"running_var", in.channels, 1.0f}};
}

void initialise(const Op& op, const Shape& in, std::span<float* const> parameters, clustar::Rng& rng) {
  const auto scale_and_shift = [&] {
    std::fill_n(parameters[0], in.channels, 1.0f);
    std::fill_n(parameters[1], in.channels, 0.0f);
  };
  std::visit(Cases{[&](const Linear& o) {
                     start_weights(parameters, o.outputs, linear_inputs(o, in), o.bias, o.deviation, rng);
                   },
                   [&](const Convolution& o) {
                     start_weights(parameters, o.filters, window_elements(o, in), o.bias, o.deviation, rng);
                   },
                   [&](const BatchNorm&) { scale_and_shift(); }, [&](const LayerNorm&) { scale_and_shift(); },
                   [&](const Embedding& o) {
                     const double bound = std::sqrt(3.0) * kEmbeddingDeviation;
                     fill(parameters[0], o.vocabulary * o.width, bound, rng);
                     fill(parameters[1], in.rows * o.width, bound, rng);
                   },
                   [](const auto&) {}},
             op);
}

std::size_t multiply_adds(const Op& op, const Shape& in, const Shape& out) {
  return std::visit(
      Cases{[&](const Linear& o) { return out.elements() * linear_inputs(o, in); },
            [&](const Convolution& o) { return out.elements() * window_elements(o, in); },
            [&](const Attention&) { return 2 * in.rows * out.elements(); }, [](const auto&) { return std::size_t{0}; }},
      op);
}

}  // namespace clustar::bench::trainer::graph
