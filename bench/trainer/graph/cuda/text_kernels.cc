#include "bench/trainer/graph/cuda/text_kernels.h"

#include <cmath>
#include <cstddef>

#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/cuda/text_arguments.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;

class EmbeddingKernel final : public graph::Kernel {
 public:
  EmbeddingKernel(Device& device, const Embedding& op, std::size_t tokens)
      : device_(device), vocabulary_(op.vocabulary), width_(op.width), tokens_(tokens) {}

  std::size_t scratch(std::size_t batch) const override { return ColumnSums(batch, tokens_ * width_).scratch(); }

  void forward(const ForwardCall& call) override {
    const std::size_t count = call.batch * tokens_ * width_;
    launch_for(device_, kEmbedding, count,
               {.numbers = call.inputs[0],
                .words = call.parameters[0],
                .places = call.parameters[1],
                .y = call.output,
                .count = count,
                .vocabulary = small(vocabulary_),
                .tokens = small(tokens_),
                .width = small(width_)});
  }

  void backward_parameters(const BackwardCall& call) override {
    launch_for(device_, kEmbeddingGradient, vocabulary_ * width_,
               {.numbers = call.inputs[0],
                .dy = call.output_gradient,
                .gradient = call.gradients[0],
                .all_tokens = call.batch * tokens_,
                .vocabulary = small(vocabulary_),
                .width = small(width_)});
    // A text is a row: places are its columns.
    sum_columns(device_, call.output_gradient, call.gradients[1], call.batch, tokens_ * width_, call.scratch);
  }

  // Numbers of tokens have no gradient.
  void backward_inputs(const BackwardCall&) override {}

 private:
  Device& device_;
  std::size_t vocabulary_;
  std::size_t width_;
  std::size_t tokens_;
};

class AttentionKernel final : public graph::Kernel {
 public:
  AttentionKernel(Device& device, const Attention& op, const Shape& out)
      : device_(device), tokens_(out.rows), width_(out.channels), heads_(op.heads), head_(out.channels / op.heads) {}

  // The weights of each head: tokens x tokens.
  std::size_t saved(std::size_t batch) const override { return batch * heads_ * tokens_ * tokens_; }
  // In evaluation the weights, in backward the scores' gradients.
  std::size_t scratch(std::size_t batch) const override { return saved(batch); }

  void forward(const ForwardCall& call) override {
    float* const weights = call.training ? call.saved : call.scratch;
    const AttentionGeometry geometry = geometry_of(call.batch);
    launch_for(device_, kAttentionWeights, rows(call.batch) * kWarpThreads,
               {.x = call.inputs[0], .weights = weights, .geometry = geometry});
    launch_for(device_, kAttentionOutput, call.batch * tokens_ * width_,
               {.x = call.inputs[0], .weights = weights, .y = call.output, .geometry = geometry});
  }

  void backward_inputs(const BackwardCall& call) override {
    if (call.input_gradients[0] == nullptr) return;
    const AttentionGeometry geometry = geometry_of(call.batch);
    launch_for(device_, kAttentionSlopes, rows(call.batch) * kWarpThreads,
               {.x = call.inputs[0],
                .dy = call.output_gradient,
                .weights = call.saved,
                .slopes = call.scratch,
                .geometry = geometry});
    launch_for(device_, kAttentionGradient, call.batch * tokens_ * 3 * width_,
               {.x = call.inputs[0],
                .dy = call.output_gradient,
                .weights = call.saved,
                .slopes = call.scratch,
                .dx = call.input_gradients[0],
                .geometry = geometry});
  }

 private:
  std::size_t rows(std::size_t batch) const { return batch * heads_ * tokens_; }
  AttentionGeometry geometry_of(std::size_t batch) const {
    return {.texts = batch,
            .tokens = small(tokens_),
            .heads = small(heads_),
            .head = small(head_),
            .scale = 1 / std::sqrt(static_cast<float>(head_))};
  }

  Device& device_;
  std::size_t tokens_;
  std::size_t width_;
  std::size_t heads_;
  std::size_t head_;  // width of one
};

}  // namespace

std::unique_ptr<graph::Kernel> make_embedding(Device& device, const Embedding& op, const Shape& in) {
  return std::make_unique<EmbeddingKernel>(device, op, in.rows);
}
std::unique_ptr<graph::Kernel> make_attention(Device& device, const Attention& op, const Shape& out) {
  return std::make_unique<AttentionKernel>(device, op, out);
}

}  // namespace clustar::bench::trainer::graph::cuda
