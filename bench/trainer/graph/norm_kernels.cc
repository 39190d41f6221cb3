#include "bench/trainer/graph/norm_kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace clustar::bench::trainer::graph {
namespace {

// Rows that are summed in float before they go into a double: the sum of a large batch would lose digits.
constexpr std::size_t kFloatRows = 64;

// Calls add(row, sums) for each row, which adds to `channels` sums, and returns the totals.
template <class AddRow>
std::vector<double> column_sums(std::size_t rows, std::size_t channels, const AddRow& add) {
  std::vector<double> totals(channels);
  std::vector<float> sums(channels);
  for (std::size_t first = 0; first < rows; first += kFloatRows) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::size_t row = first; row < std::min(first + kFloatRows, rows); ++row) add(row, sums.data());
    for (std::size_t c = 0; c < channels; ++c) totals[c] += double{sums[c]};
  }
  return totals;
}

class BatchNormKernel final : public Kernel {
 public:
  explicit BatchNormKernel(const Shape& shape) : positions_(shape.positions()), channels_(shape.channels) {}

  // Per channel: the batch's mean, 1 / deviation, and the means of dy and of dy times the normalised input.
  std::size_t saved(std::size_t) const override { return 4 * channels_; }
  // Per channel: factor and summand of forward.
  std::size_t scratch(std::size_t) const override { return 2 * channels_; }

  void forward(const ForwardCall& call) override {
    const std::size_t rows = call.batch * positions_;
    std::vector<float> mean(call.states[0], call.states[0] + channels_);
    std::vector<float> variance(call.states[1], call.states[1] + channels_);
    if (call.training) {
      measure(call.inputs[0], rows, mean, variance);
      update_running(call.states, mean.data(), variance.data(), channels_, rows);
    }
    float* factor = call.scratch;
    float* summand = call.scratch + channels_;
    for (std::size_t c = 0; c < channels_; ++c) {
      const float inverse = 1 / std::sqrt(variance[c] + kNormEpsilon);
      factor[c] = call.parameters[0][c] * inverse;
      summand[c] = call.parameters[1][c] - mean[c] * factor[c];
      if (!call.training) continue;
      call.saved[c] = mean[c];
      call.saved[channels_ + c] = inverse;
    }
    apply(call.inputs[0], rows, factor, summand, call.output);
  }

  void backward_parameters(const BackwardCall& call) override {
    const std::size_t rows = call.batch * positions_;
    const float* mean = call.saved;
    const float* inverse = call.saved + channels_;
    const auto shift = column_sums(rows, channels_, [&](std::size_t row, float* sums) {
      const float* dy = call.output_gradient + row * channels_;
      for (std::size_t c = 0; c < channels_; ++c) sums[c] += dy[c];
    });
    const auto scale = column_sums(rows, channels_, [&](std::size_t row, float* sums) {
      const float* dy = call.output_gradient + row * channels_;
      const float* x = call.inputs[0] + row * channels_;
      for (std::size_t c = 0; c < channels_; ++c) sums[c] += dy[c] * (x[c] - mean[c]);
    });
    for (std::size_t c = 0; c < channels_; ++c) {
      call.gradients[0][c] = static_cast<float>(scale[c]) * inverse[c];
      call.gradients[1][c] = static_cast<float>(shift[c]);
      call.saved[2 * channels_ + c] = static_cast<float>(shift[c] / static_cast<double>(rows));
      call.saved[3 * channels_ + c] = static_cast<float>(scale[c] / static_cast<double>(rows)) * inverse[c];
    }
  }

  // dx = scale / deviation (dy - mean of dy - normalised x times mean of dy normalised x)
  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    std::vector<float> of_dy(channels_), of_x(channels_), rest(channels_);
    for (std::size_t c = 0; c < channels_; ++c) {
      const float inverse = call.saved[channels_ + c];
      of_dy[c] = call.parameters[0][c] * inverse;
      of_x[c] = -of_dy[c] * inverse * call.saved[3 * channels_ + c];
      rest[c] = -of_dy[c] * call.saved[2 * channels_ + c] - of_x[c] * call.saved[c];
    }
    for (std::size_t row = 0; row < call.batch * positions_; ++row) {
      const float* __restrict dy = call.output_gradient + row * channels_;
      const float* __restrict x = call.inputs[0] + row * channels_;
      float* __restrict dx = call.input_gradients[0] + row * channels_;
      for (std::size_t c = 0; c < channels_; ++c) dx[c] = of_dy[c] * dy[c] + of_x[c] * x[c] + rest[c];
    }
  }

 private:
  void measure(const float* values, std::size_t rows, std::vector<float>& mean, std::vector<float>& variance) const {
    const auto count = static_cast<double>(rows);
    const auto sum = column_sums(rows, channels_, [&](std::size_t row, float* sums) {
      const float* x = values + row * channels_;
      for (std::size_t c = 0; c < channels_; ++c) sums[c] += x[c];
    });
    for (std::size_t c = 0; c < channels_; ++c) mean[c] = static_cast<float>(sum[c] / count);
    const auto squares = column_sums(rows, channels_, [&](std::size_t row, float* sums) {
      const float* x = values + row * channels_;
      for (std::size_t c = 0; c < channels_; ++c) sums[c] += (x[c] - mean[c]) * (x[c] - mean[c]);
    });
    for (std::size_t c = 0; c < channels_; ++c) variance[c] = static_cast<float>(squares[c] / count);
  }

  void apply(const float* values, std::size_t rows, const float* __restrict factor, const float* __restrict summand,
             float* output) const {
    for (std::size_t row = 0; row < rows; ++row) {
      const float* __restrict x = values + row * channels_;
      float* __restrict y = output + row * channels_;
      for (std::size_t c = 0; c < channels_; ++c) y[c] = x[c] * factor[c] + summand[c];
    }
  }

  std::size_t positions_;
  std::size_t channels_;
};

class LayerNormKernel final : public Kernel {
 public:
  explicit LayerNormKernel(const Shape& shape) : positions_(shape.positions()), channels_(shape.channels) {}

  // Per position: mean, 1 / deviation.
  std::size_t saved(std::size_t batch) const override { return 2 * batch * positions_; }

  void forward(const ForwardCall& call) override {
    for (std::size_t row = 0; row < call.batch * positions_; ++row) {
      const float* __restrict x = call.inputs[0] + row * channels_;
      float* __restrict y = call.output + row * channels_;
      double sum = 0;
      for (std::size_t c = 0; c < channels_; ++c) sum += double{x[c]};
      const auto mean = static_cast<float>(sum / static_cast<double>(channels_));
      double squares = 0;
      for (std::size_t c = 0; c < channels_; ++c) squares += double{(x[c] - mean) * (x[c] - mean)};
      const auto variance = static_cast<float>(squares / static_cast<double>(channels_));
      const float inverse = 1 / std::sqrt(variance + kNormEpsilon);
      for (std::size_t c = 0; c < channels_; ++c) {
        y[c] = (x[c] - mean) * inverse * call.parameters[0][c] + call.parameters[1][c];
      }
      if (!call.training) continue;
      call.saved[2 * row] = mean;
      call.saved[2 * row + 1] = inverse;
    }
  }

  void backward_parameters(const BackwardCall& call) override {
    float* __restrict scale = call.gradients[0];
    float* __restrict shift = call.gradients[1];
    std::fill_n(scale, channels_, 0.0f);
    std::fill_n(shift, channels_, 0.0f);
    for (std::size_t row = 0; row < call.batch * positions_; ++row) {
      const float* __restrict x = call.inputs[0] + row * channels_;
      const float* __restrict dy = call.output_gradient + row * channels_;
      const float mean = call.saved[2 * row];
      const float inverse = call.saved[2 * row + 1];
      for (std::size_t c = 0; c < channels_; ++c) {
        scale[c] += dy[c] * (x[c] - mean) * inverse;
        shift[c] += dy[c];
      }
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const float* scale = call.parameters[0];
    for (std::size_t row = 0; row < call.batch * positions_; ++row) {
      const float* __restrict x = call.inputs[0] + row * channels_;
      const float* __restrict dy = call.output_gradient + row * channels_;
      float* __restrict dx = call.input_gradients[0] + row * channels_;
      const float mean = call.saved[2 * row];
      const float inverse = call.saved[2 * row + 1];
      double sum = 0;
      double along = 0;
      for (std::size_t c = 0; c < channels_; ++c) {
        const float g = dy[c] * scale[c];
        sum += double{g};
        along += double{g * (x[c] - mean) * inverse};
      }
      const auto mean_g = static_cast<float>(sum / static_cast<double>(channels_));
      const auto mean_along = static_cast<float>(along / static_cast<double>(channels_));
      for (std::size_t c = 0; c < channels_; ++c) {
        dx[c] = inverse * (dy[c] * scale[c] - mean_g - (x[c] - mean) * inverse * mean_along);
      }
    }
  }

 private:
  std::size_t positions_;
  std::size_t channels_;
};

}  // namespace

void update_running(std::span<float* const> states, const float* mean, const float* variance, std::size_t channels,
                    std::size_t rows) {
  const float unbiased = rows > 1 ? static_cast<float>(rows) / static_cast<float>(rows - 1) : 1.0f;
  for (std::size_t c = 0; c < channels; ++c) {
    states[0][c] += kBatchNormMomentum * (mean[c] - states[0][c]);
    states[1][c] += kBatchNormMomentum * (variance[c] * unbiased - states[1][c]);
  }
}

std::unique_ptr<Kernel> make_batch_norm(const Shape& shape) { return std::make_unique<BatchNormKernel>(shape); }
std::unique_ptr<Kernel> make_layer_norm(const Shape& shape) { return std::make_unique<LayerNormKernel>(shape); }

}  // namespace clustar::bench::trainer::graph
