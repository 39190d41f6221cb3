#include "bench/trainer/graph/text_kernels.h"

#include <algorithm>
#include <cmath>

namespace clustar::bench::trainer::graph {
namespace {

class EmbeddingKernel final : public Kernel {
 public:
  EmbeddingKernel(const Embedding& op, std::size_t tokens)
      : vocabulary_(op.vocabulary), width_(op.width), tokens_(tokens) {}

  void forward(const ForwardCall& call) override {
    for (std::size_t t = 0; t < call.batch * tokens_; ++t) {
      const float* token = call.parameters[0] + row(call.inputs[0][t]);
      const float* place = call.parameters[1] + t % tokens_ * width_;
      float* y = call.output + t * width_;
      for (std::size_t i = 0; i < width_; ++i) y[i] = token[i] + place[i];
    }
  }

  void backward_parameters(const BackwardCall& call) override {
    std::fill_n(call.gradients[0], vocabulary_ * width_, 0.0f);
    std::fill_n(call.gradients[1], tokens_ * width_, 0.0f);
    for (std::size_t t = 0; t < call.batch * tokens_; ++t) {
      float* token = call.gradients[0] + row(call.inputs[0][t]);
      float* place = call.gradients[1] + t % tokens_ * width_;
      const float* dy = call.output_gradient + t * width_;
      for (std::size_t i = 0; i < width_; ++i) token[i] += dy[i];
      for (std::size_t i = 0; i < width_; ++i) place[i] += dy[i];
    }
  }

  // Numbers of tokens have no gradient.
  void backward_inputs(const BackwardCall&) override {}

 private:
  std::size_t row(float token) const { return std::min(static_cast<std::size_t>(token), vocabulary_ - 1) * width_; }

  std::size_t vocabulary_;
  std::size_t width_;
  std::size_t tokens_;
};

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const Attention& op, const Shape& out, Gemm gemm)
      : tokens_(out.rows), width_(out.channels), heads_(op.heads), head_(out.channels / op.heads), gemm_(gemm) {}

  // The weights of each head: tokens x tokens.
  std::size_t saved(std::size_t batch) const override { return batch * heads_ * tokens_ * tokens_; }
  // Of one head: queries, keys, values and the output, or their gradients, and two matrices of weights.
  std::size_t scratch(std::size_t) const override { return 7 * tokens_ * head_ + 2 * tokens_ * tokens_; }

  void forward(const ForwardCall& call) override {
    const Parts part = parts(call.scratch);
    for (std::size_t i = 0; i < call.batch * heads_; ++i) {
      float* weights = call.saved != nullptr ? call.saved + i * tokens_ * tokens_ : part.weights;
      const float* x = call.inputs[0] + i / heads_ * tokens_ * 3 * width_ + i % heads_ * head_;
      gather_inputs(x, part);
      gemm_({.a = Trans::kNo, .b = Trans::kYes, .m = tokens_, .n = tokens_, .k = head_}, part.q, part.k, weights);
      for (std::size_t t = 0; t < tokens_; ++t) softmax(weights + t * tokens_, t + 1);
      gemm_({.a = Trans::kNo, .b = Trans::kNo, .m = tokens_, .n = head_, .k = tokens_}, weights, part.v, part.y);
      scatter(part.y, call.output + i / heads_ * tokens_ * width_ + i % heads_ * head_, width_, 1);
    }
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const Parts part = parts(call.scratch);
    for (std::size_t i = 0; i < call.batch * heads_; ++i) {
      const float* weights = call.saved + i * tokens_ * tokens_;
      const std::size_t at = i / heads_ * tokens_ * 3 * width_ + i % heads_ * head_;
      gather_inputs(call.inputs[0] + at, part);
      gather(call.output_gradient + i / heads_ * tokens_ * width_ + i % heads_ * head_, width_, 1, part.y);
      gemm_({.a = Trans::kYes, .b = Trans::kNo, .m = tokens_, .n = head_, .k = tokens_}, weights, part.y, part.dv);
      gemm_({.a = Trans::kNo, .b = Trans::kYes, .m = tokens_, .n = tokens_, .k = head_}, part.y, part.v, part.scores);
      for (std::size_t t = 0; t < tokens_; ++t)
        softmax_gradient(weights + t * tokens_, t + 1, part.scores + t * tokens_);
      gemm_({.a = Trans::kNo, .b = Trans::kNo, .m = tokens_, .n = head_, .k = tokens_}, part.scores, part.k, part.dq);
      gemm_({.a = Trans::kYes, .b = Trans::kNo, .m = tokens_, .n = head_, .k = tokens_}, part.scores, part.q, part.dk);
      float* dx = call.input_gradients[0] + at;
      scatter(part.dq, dx, 3 * width_, scale());
      scatter(part.dk, dx + width_, 3 * width_, 1);  // q was scaled already
      scatter(part.dv, dx + 2 * width_, 3 * width_, 1);
    }
  }

 private:
  struct Parts {
    float *q, *k, *v, *y, *dq, *dk, *dv;  // tokens x head
    float *weights, *scores;              // tokens x tokens
  };
  Parts parts(float* scratch) const {
    const std::size_t n = tokens_ * head_;
    return {scratch,         scratch + n,     scratch + 2 * n,
            scratch + 3 * n, scratch + 4 * n, scratch + 5 * n,
            scratch + 6 * n, scratch + 7 * n, scratch + 7 * n + tokens_ * tokens_};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_)); }

  void gather_inputs(const float* x, const Parts& part) const {
    gather(x, 3 * width_, scale(), part.q);
    gather(x + width_, 3 * width_, 1, part.k);
    gather(x + 2 * width_, 3 * width_, 1, part.v);
  }
  void gather(const float* from, std::size_t stride, float factor, float* to) const {
    for (std::size_t t = 0; t < tokens_; ++t, from += stride, to += head_) {
      for (std::size_t i = 0; i < head_; ++i) to[i] = from[i] * factor;
    }
  }
  void scatter(const float* from, float* to, std::size_t stride, float factor) const {
    for (std::size_t t = 0; t < tokens_; ++t, from += head_, to += stride) {
      for (std::size_t i = 0; i < head_; ++i) to[i] = from[i] * factor;
    }
  }

  // Over the first `count` scores of a row; what comes later has weight 0.
  void softmax(float* row, std::size_t count) const {
    const float top = *std::max_element(row, row + count);
    float sum = 0;
    for (std::size_t j = 0; j < count; ++j) sum += row[j] = std::exp(row[j] - top);
    const float factor = 1 / sum;
    for (std::size_t j = 0; j < count; ++j) row[j] *= factor;
    std::fill(row + count, row + tokens_, 0.0f);
  }

  // `row`: gradients by the weights, in; by the scores, out.
  void softmax_gradient(const float* weights, std::size_t count, float* row) const {
    float mean = 0;
    for (std::size_t j = 0; j < count; ++j) mean += weights[j] * row[j];
    for (std::size_t j = 0; j < count; ++j) row[j] = weights[j] * (row[j] - mean);
    std::fill(row + count, row + tokens_, 0.0f);
  }

  std::size_t tokens_;
  std::size_t width_;
  std::size_t heads_;
  std::size_t head_;  // width of one
  Gemm gemm_;
};

}  // namespace

std::unique_ptr<Kernel> make_embedding(const Embedding& op, const Shape& in) {
  return std::make_unique<EmbeddingKernel>(op, in.rows);
}
std::unique_ptr<Kernel> make_attention(const Attention& op, const Shape& out, Gemm gemm) {
  return std::make_unique<AttentionKernel>(op, out, gemm);
}

}  // namespace clustar::bench::trainer::graph
