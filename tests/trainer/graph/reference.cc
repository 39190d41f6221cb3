#include "tests/trainer/graph/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <variant>

namespace clustar::bench::trainer::graph {
namespace {

struct Operands {
  Shape in;
  Shape out;
  std::size_t batch;
  const std::vector<Doubles>& x;
  const std::vector<Doubles>& p;

  std::size_t at(const Shape& shape, std::size_t image, std::size_t row, std::size_t column,
                 std::size_t channel) const {
    return ((image * shape.rows + row) * shape.columns + column) * shape.channels + channel;
  }
};

Doubles forward(const Linear& op, const Operands& o) {
  const std::size_t inputs = op.per_position ? o.in.channels : o.in.elements();
  Doubles y(o.batch * o.out.elements());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i / op.outputs;
    const std::size_t unit = i % op.outputs;
    y[i] = op.bias ? o.p[1][unit] : 0;
    for (std::size_t j = 0; j < inputs; ++j) y[i] += o.x[0][row * inputs + j] * o.p[0][unit * inputs + j];
  }
  return y;
}

// Calls act(output, input's row and column) for every element of every window that lies in the image.
template <class Act>
void for_windows(const Operands& o, std::size_t window, std::size_t stride, std::size_t padding, const Act& act) {
  for (std::size_t r = 0; r < o.out.rows; ++r) {
    for (std::size_t c = 0; c < o.out.columns; ++c) {
      for (std::size_t k = 0; k < window * window; ++k) {
        const std::size_t row = r * stride + k / window;
        const std::size_t column = c * stride + k % window;
        if (row < padding || column < padding || row - padding >= o.in.rows || column - padding >= o.in.columns)
          continue;
        act(r, c, k, row - padding, column - padding);
      }
    }
  }
}

Doubles forward(const Convolution& op, const Operands& o) {
  Doubles y(o.batch * o.out.elements());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = op.bias ? o.p[1][i % op.filters] : 0;
  for (std::size_t image = 0; image < o.batch; ++image) {
    for_windows(o, op.kernel, op.stride, op.padding,
                [&](std::size_t r, std::size_t c, std::size_t k, std::size_t row, std::size_t column) {
                  for (std::size_t f = 0; f < op.filters; ++f) {
                    for (std::size_t ch = 0; ch < o.in.channels; ++ch) {
                      const double weight = o.p[0][(f * op.kernel * op.kernel + k) * o.in.channels + ch];
                      y[o.at(o.out, image, r, c, f)] += weight * o.x[0][o.at(o.in, image, row, column, ch)];
                    }
                  }
                });
  }
  return y;
}

Doubles forward(const MaxPool& op, const Operands& o) {
  Doubles y(o.batch * o.out.elements(), -1e300);
  for (std::size_t image = 0; image < o.batch; ++image) {
    for_windows(o, op.window, op.stride, op.padding,
                [&](std::size_t r, std::size_t c, std::size_t, std::size_t row, std::size_t column) {
                  for (std::size_t ch = 0; ch < o.in.channels; ++ch) {
                    double& largest = y[o.at(o.out, image, r, c, ch)];
                    largest = std::max(largest, o.x[0][o.at(o.in, image, row, column, ch)]);
                  }
                });
  }
  return y;
}

Doubles forward(const AdaptiveAveragePool&, const Operands& o) {
  Doubles y(o.batch * o.out.elements());
  const auto range = [](std::size_t i, std::size_t ins, std::size_t outs) {
    const double step = static_cast<double>(ins) / static_cast<double>(outs);
    return std::pair{static_cast<std::size_t>(std::floor(static_cast<double>(i) * step + 1e-9)),
                     static_cast<std::size_t>(std::ceil(static_cast<double>(i + 1) * step - 1e-9))};
  };
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t ch = i % o.out.channels;
    const auto [left, right] = range(i / o.out.channels % o.out.columns, o.in.columns, o.out.columns);
    const auto [top, bottom] = range(i / o.out.channels / o.out.columns % o.out.rows, o.in.rows, o.out.rows);
    for (std::size_t r = top; r < bottom; ++r) {
      for (std::size_t c = left; c < right; ++c) y[i] += o.x[0][o.at(o.in, i / o.out.elements(), r, c, ch)];
    }
    y[i] /= static_cast<double>((bottom - top) * (right - left));
  }
  return y;
}

// Groups of elements (first + i * stride) to mean 0 and variance 1.
void normalise(Doubles& values, std::size_t first, std::size_t stride, std::size_t count) {
  double mean = 0;
  double variance = 0;
  for (std::size_t i = 0; i < count; ++i) mean += values[first + i * stride] / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    variance += std::pow(values[first + i * stride] - mean, 2) / static_cast<double>(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    double& value = values[first + i * stride];
    value = (value - mean) / std::sqrt(variance + 1e-5);
  }
}

void scale_and_shift(Doubles& values, const Operands& o) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = values[i] * o.p[0][i % o.in.channels] + o.p[1][i % o.in.channels];
  }
}

Doubles forward(const BatchNorm&, const Operands& o) {
  Doubles y = o.x[0];
  for (std::size_t c = 0; c < o.in.channels; ++c) normalise(y, c, o.in.channels, y.size() / o.in.channels);
  scale_and_shift(y, o);
  return y;
}

Doubles forward(const LayerNorm&, const Operands& o) {
  Doubles y = o.x[0];
  for (std::size_t row = 0; row < y.size(); row += o.in.channels) normalise(y, row, 1, o.in.channels);
  scale_and_shift(y, o);
  return y;
}

Doubles forward(const Relu&, const Operands& o) {
  Doubles y = o.x[0];
  for (double& value : y) value = std::max(value, 0.0);
  return y;
}

Doubles forward(const Gelu&, const Operands& o) {
  Doubles y = o.x[0];
  for (double& v : y) v = v / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
  return y;
}

Doubles forward(const Add&, const Operands& o) {
  Doubles y = o.x[0];
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += o.x[1][i];
  return y;
}

Doubles forward(const Embedding& op, const Operands& o) {
  Doubles y(o.batch * o.out.elements());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t token = i / op.width;
    const auto word = static_cast<std::size_t>(o.x[0][token]);
    y[i] = o.p[0][word * op.width + i % op.width] + o.p[1][token % o.in.rows * op.width + i % op.width];
  }
  return y;
}

Doubles forward(const Attention& op, const Operands& o) {
  Doubles y(o.batch * o.out.elements());
  const std::size_t width = o.out.channels;
  const std::size_t head = width / op.heads;
  // What (0 query, 1 key, 2 value) of a token in a head.
  const auto part = [&](std::size_t what, std::size_t image, std::size_t token, std::size_t unit) {
    return o.x[0][(image * o.in.rows + token) * 3 * width + what * width + unit];
  };
  for (std::size_t row = 0; row < o.batch * o.in.rows * op.heads; ++row) {
    const std::size_t h = row % op.heads * head;
    const std::size_t token = row / op.heads % o.in.rows;
    const std::size_t image = row / op.heads / o.in.rows;
    Doubles weights;
    double sum = 0;
    for (std::size_t other = 0; other <= token; ++other) {
      double score = 0;
      for (std::size_t i = h; i < h + head; ++i) score += part(0, image, token, i) * part(1, image, other, i);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head))));
      sum += weights.back();
    }
    for (std::size_t i = h; i < h + head; ++i) {
      for (std::size_t other = 0; other <= token; ++other) {
        y[(image * o.in.rows + token) * width + i] += weights[other] / sum * part(2, image, other, i);
      }
    }
  }
  return y;
}

Doubles forward(const Input&, const Operands&) { throw std::logic_error("an input is not computed"); }
Doubles forward(const Dropout&, const Operands&) { throw std::logic_error("dropout draws"); }

}  // namespace

Doubles reference(const Op& op, const std::vector<Shape>& shapes, std::size_t batch, const std::vector<Doubles>& inputs,
                  const std::vector<Doubles>& parameters) {
  const Operands operands{shapes[0], output_shape(op, shapes), batch, inputs, parameters};
  return std::visit([&](const auto& one) { return forward(one, operands); }, op);
}

}  // namespace clustar::bench::trainer::graph
