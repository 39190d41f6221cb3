// Of kernels on texts.
#pragma once

#include "bench/trainer/graph/cuda/arguments.h"

namespace clustar::bench::trainer::graph::cuda {

// y[t] = words[number of token t] + places[t mod tokens]; a number beyond the vocabulary counts as its last one.
struct EmbeddingArguments {
  const float* numbers = nullptr;
  const float* words = nullptr;   // vocabulary x width
  const float* places = nullptr;  // tokens x width
  float* y = nullptr;
  unsigned long long count = 0;  // of y
  unsigned vocabulary = 1, tokens = 1, width = 1;
};
inline constexpr Kernel<EmbeddingArguments> kEmbedding{"clustar_embedding"};

// gradient[w] = sum of dy[t] over the tokens t with number w, in their order.
struct EmbeddingGradientArguments {
  const float* numbers = nullptr;
  const float* dy = nullptr;
  float* gradient = nullptr;          // vocabulary x width
  unsigned long long all_tokens = 0;  // of the batch
  unsigned vocabulary = 1, width = 1;
};
inline constexpr Kernel<EmbeddingGradientArguments> kEmbeddingGradient{"clustar_embedding_gradient"};

// Op's Attention. Matrices of weights and of scores are tokens x tokens for each head of each text; what is above the
// diagonal, a token's weight of what comes later, is neither written nor read.
struct AttentionGeometry {
  unsigned long long texts = 0;
  unsigned tokens = 1, heads = 1, head = 1;  // head: width of one
  float scale = 1;                           // of scores
};
// softmax(scale q k), a warp a row.
struct AttentionWeightsArguments {
  const float* x = nullptr;
  float* weights = nullptr;
  AttentionGeometry geometry;
};
inline constexpr Kernel<AttentionWeightsArguments> kAttentionWeights{"clustar_attention_weights"};
// y = weights v.
struct AttentionOutputArguments {
  const float* x = nullptr;
  const float* weights = nullptr;
  float* y = nullptr;
  AttentionGeometry geometry;
};
inline constexpr Kernel<AttentionOutputArguments> kAttentionOutput{"clustar_attention_output"};
// slopes: gradients by the scores, a warp a row.
struct AttentionSlopesArguments {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* weights = nullptr;
  float* slopes = nullptr;
  AttentionGeometry geometry;
};
inline constexpr Kernel<AttentionSlopesArguments> kAttentionSlopes{"clustar_attention_slopes"};
// dx: of queries scale slopes k, of keys scale slopes^T q, of values weights^T dy.
struct AttentionGradientArguments {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* weights = nullptr;
  const float* slopes = nullptr;
  float* dx = nullptr;
  AttentionGeometry geometry;
};
inline constexpr Kernel<AttentionGradientArguments> kAttentionGradient{"clustar_attention_gradient"};

}  // namespace clustar::bench::trainer::graph::cuda
