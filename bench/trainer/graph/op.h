// The operations that a network is made of, as plain data: what they compute is written here, how is a Kernel's matter.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "bench/trainer/graph/shape.h"
#include "transport/base/rng.h"

namespace clustar::bench::trainer::graph {

// The examples themselves: the first node of every graph, and of no other kind.
struct Input {};

// Weights of Linear and Convolution start uniform: with `deviation` 0 in +-1/sqrt(inputs of one output), biases too
// (PyTorch's default); otherwise with that standard deviation, biases zero. No normal distribution, whose values would
// hang on the machine's libm.

// y = x W^T + b; W is outputs x inputs. All elements of an example, or those of each position alone.
struct Linear {
  std::size_t outputs = 0;
  bool bias = true;
  bool per_position = false;
  double deviation = 0;
};
// Cross-correlation of kernel x kernel windows, zeros around the image; W is filters x (kernel x kernel x channels).
struct Convolution {
  std::size_t filters = 0;
  std::size_t kernel = 1;
  std::size_t stride = 1;
  std::size_t padding = 0;
  bool bias = true;
  double deviation = 0;
};
// The largest of each window, channel by channel; windows that would reach over the padding are left out. Of equal
// values the first in reading order gets the gradient. Padding is at most half of the window.
struct MaxPool {
  std::size_t window = 2;
  std::size_t stride = 2;
  std::size_t padding = 0;
};
// Output (i, j) is the mean of rows floor(i R/rows) to ceil((i+1) R/rows), columns alike (torch.nn.AdaptiveAvgPool2d):
// a smaller image is repeated, and 1 x 1 is the mean of all.
struct AdaptiveAveragePool {
  std::size_t rows = 1;
  std::size_t columns = 1;
};
// Each channel to mean 0 and variance 1 over batch and positions, then scale and shift. State: running mean and
// unbiased variance (momentum 0.1, epsilon 1e-5), which evaluation takes instead.
struct BatchNorm {};
// Each position to mean 0 and variance 1 over its channels (epsilon 1e-5), then scale and shift.
struct LayerNorm {};
struct Relu {};
struct Gelu {};  // by tanh, as GPT-2: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
// In training each element is zero with this probability, otherwise times 1 / (1 - probability). 0 <= probability < 1.
struct Dropout {
  double probability = 0.5;
};
struct Add {};  // of two values of one shape
// Token numbers (tokens x 1 x 1) to a learnt row for the token plus one for the place.
struct Embedding {
  std::size_t vocabulary = 0;
  std::size_t width = 0;
};
// Queries, keys and values (tokens x 1 x 3 width, in this order) to tokens x 1 x width. A token attends to itself and
// what is before it; scores are divided by the root of a head's width.
struct Attention {
  std::size_t heads = 1;
};

using Op = std::variant<Input, Linear, Convolution, MaxPool, AdaptiveAveragePool, BatchNorm, LayerNorm, Relu, Gelu,
                        Dropout, Add, Embedding, Attention>;

struct TensorSpec {
  std::string name;  // within the layer: "weight", "bias"
  std::size_t elements = 0;
  std::size_t columns = 1;  // of the matrix that it is, row-major: weights have a row per output
};

// What training changes beside the parameters.
struct StateSpec {
  std::string name;
  std::size_t elements = 0;
  float initial = 0;
};

// For people: "conv 3x3x64, stride 2".
std::string label(const Op& op);
// Throws std::invalid_argument that names what does not fit, as do all who are given a shape that does not.
Shape output_shape(const Op& op, std::span<const Shape> inputs);
std::vector<TensorSpec> tensors(const Op& op, const Shape& input);
std::vector<StateSpec> states(const Op& op, const Shape& input);
// `parameters`: in the order of tensors().
void initialise(const Op& op, const Shape& input, std::span<float* const> parameters, clustar::Rng& rng);
// Multiplications with an addition, forward, of one example; what is not a matrix product counts as nothing.
std::size_t multiply_adds(const Op& op, const Shape& input, const Shape& output);

}  // namespace clustar::bench::trainer::graph
