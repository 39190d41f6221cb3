// Embedding and attention. A token's number decides which thread sums its gradient, so that the order of a sum is that
// of the tokens, whatever runs first.
#include "bench/trainer/graph/cuda/for_each.h"
#include "bench/trainer/graph/cuda/text_arguments.h"
#include "bench/trainer/graph/cuda/warps.h"

namespace clustar::bench::trainer::graph::cuda {

__device__ inline unsigned word_of(float number, unsigned vocabulary) {
  const auto word = static_cast<unsigned>(number);
  return word < vocabulary ? word : vocabulary - 1;
}

// A row of a matrix of weights: of one token in one head of one text.
struct AttentionRow {
  unsigned token, head;
  unsigned long long text;
};
__device__ inline AttentionRow row_of(const AttentionGeometry& g, unsigned long long row) {
  const unsigned long long matrix = row / g.tokens;
  return {static_cast<unsigned>(row % g.tokens), static_cast<unsigned>(matrix % g.heads), matrix / g.heads};
}

// A text's first query (0), key (1) or value (2) of a head; the next token's is 3 heads x head further.
__device__ inline const float* part_of(const float* x, const AttentionGeometry& g, unsigned long long text,
                                       unsigned head, unsigned part) {
  const unsigned width = g.heads * g.head;
  return x + text * g.tokens * 3 * width + part * width + head * g.head;
}

__device__ inline float dot(const float* a, const float* b, unsigned count) {
  float sum = 0;
  for (unsigned i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// A lane has every kWarp-th score, and alone writes and reads it.
__device__ inline void attention_weights(const AttentionWeightsArguments& of, unsigned long long row, unsigned lane) {
  const AttentionGeometry& g = of.geometry;
  const AttentionRow at = row_of(g, row);
  const unsigned stride = 3 * g.heads * g.head;
  const float* const query = part_of(of.x, g, at.text, at.head, 0) + at.token * static_cast<unsigned long long>(stride);
  const float* const keys = part_of(of.x, g, at.text, at.head, 1);
  float* const weights = of.weights + row * g.tokens;
  float top = __uint_as_float(0xff800000u);  // minus infinity
  for (unsigned j = lane; j <= at.token; j += kWarp) {
    const float score = g.scale * dot(query, keys + j * static_cast<unsigned long long>(stride), g.head);
    weights[j] = score;
    top = fmaxf(top, score);
  }
  top = largest_of_lanes(top);
  float sum = 0;
  for (unsigned j = lane; j <= at.token; j += kWarp) {
    const float power = expf(weights[j] - top);
    weights[j] = power;
    sum += power;
  }
  const float factor = 1 / sum_of_lanes(sum);
  for (unsigned j = lane; j <= at.token; j += kWarp) weights[j] *= factor;
}

__device__ inline void attention_slopes(const AttentionSlopesArguments& of, unsigned long long row, unsigned lane) {
  const AttentionGeometry& g = of.geometry;
  const AttentionRow at = row_of(g, row);
  const unsigned width = g.heads * g.head;
  const float* const dy = of.dy + (at.text * g.tokens + at.token) * width + at.head * g.head;
  const float* const values = part_of(of.x, g, at.text, at.head, 2);
  const float* const weights = of.weights + row * g.tokens;
  float* const slopes = of.slopes + row * g.tokens;
  float mean = 0;
  for (unsigned j = lane; j <= at.token; j += kWarp) {
    const float slope = dot(dy, values + j * 3ull * width, g.head);
    slopes[j] = slope;
    mean += weights[j] * slope;
  }
  mean = sum_of_lanes(mean);
  for (unsigned j = lane; j <= at.token; j += kWarp) slopes[j] = weights[j] * (slopes[j] - mean);
}

__device__ inline void attention_output(const AttentionOutputArguments& of, unsigned long long i) {
  const AttentionGeometry& g = of.geometry;
  const unsigned width = g.heads * g.head;
  const auto channel = static_cast<unsigned>(i % width);
  const auto token = static_cast<unsigned>(i / width % g.tokens);
  const unsigned long long text = i / width / g.tokens;
  const unsigned head = channel / g.head;
  const float* const weights = of.weights + ((text * g.heads + head) * g.tokens + token) * g.tokens;
  const float* const values = part_of(of.x, g, text, head, 2) + channel % g.head;
  float sum = 0;
  for (unsigned j = 0; j <= token; ++j) sum += weights[j] * values[j * 3ull * width];
  of.y[i] = sum;
}

__device__ inline float attention_gradient(const AttentionGradientArguments& of, unsigned long long i) {
  const AttentionGeometry& g = of.geometry;
  const unsigned width = g.heads * g.head;
  const auto place = static_cast<unsigned>(i % (3 * width));
  const auto token = static_cast<unsigned>(i / (3 * width) % g.tokens);
  const unsigned long long text = i / (3 * width) / g.tokens;
  const unsigned channel = place % width;
  const unsigned head = channel / g.head;
  const unsigned long long matrix = (text * g.heads + head) * g.tokens * g.tokens;
  float sum = 0;
  if (place < width) {
    const float* const slopes = of.slopes + matrix + token * static_cast<unsigned long long>(g.tokens);
    const float* const keys = part_of(of.x, g, text, head, 1) + channel % g.head;
    for (unsigned j = 0; j <= token; ++j) sum += slopes[j] * keys[j * 3ull * width];
    return g.scale * sum;
  }
  if (place < 2 * width) {
    const float* const slopes = of.slopes + matrix + token;
    const float* const queries = part_of(of.x, g, text, head, 0) + channel % g.head;
    for (unsigned t = token; t < g.tokens; ++t) {
      sum += slopes[t * static_cast<unsigned long long>(g.tokens)] * queries[t * 3ull * width];
    }
    return g.scale * sum;
  }
  const float* const weights = of.weights + matrix + token;
  const float* const dy = of.dy + text * g.tokens * width + channel;
  for (unsigned t = token; t < g.tokens; ++t) {
    sum += weights[t * static_cast<unsigned long long>(g.tokens)] * dy[t * static_cast<unsigned long long>(width)];
  }
  return sum;
}

__device__ inline unsigned long long rows_of(const AttentionGeometry& g) { return g.texts * g.heads * g.tokens; }

}  // namespace clustar::bench::trainer::graph::cuda

extern "C" __global__ void clustar_embedding(const clustar::bench::trainer::graph::cuda::EmbeddingArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(of.count, [&](unsigned long long i) {
    const unsigned long long token = i / of.width;
    const auto column = static_cast<unsigned>(i % of.width);
    const unsigned long long word = word_of(of.numbers[token], of.vocabulary);
    of.y[i] = of.words[word * of.width + column] + of.places[token % of.tokens * of.width + column];
  });
}

extern "C" __global__ void clustar_embedding_gradient(
    const clustar::bench::trainer::graph::cuda::EmbeddingGradientArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each(static_cast<unsigned long long>(of.vocabulary) * of.width, [&](unsigned long long i) {
    const auto word = static_cast<unsigned>(i / of.width);
    const auto column = static_cast<unsigned>(i % of.width);
    float sum = 0;
    for (unsigned long long t = 0; t < of.all_tokens; ++t) {
      if (word_of(of.numbers[t], of.vocabulary) == word) sum += of.dy[t * of.width + column];
    }
    of.gradient[i] = sum;
  });
}

extern "C" __global__ void clustar_attention_weights(
    const clustar::bench::trainer::graph::cuda::AttentionWeightsArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each_row(rows_of(of.geometry), [&](unsigned long long row, unsigned lane) { attention_weights(of, row, lane); });
}

extern "C" __global__ void clustar_attention_output(
    const clustar::bench::trainer::graph::cuda::AttentionOutputArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  const AttentionGeometry& g = of.geometry;
  for_each(g.texts * g.tokens * g.heads * g.head, [&](unsigned long long i) { attention_output(of, i); });
}

extern "C" __global__ void clustar_attention_slopes(
    const clustar::bench::trainer::graph::cuda::AttentionSlopesArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  for_each_row(rows_of(of.geometry), [&](unsigned long long row, unsigned lane) { attention_slopes(of, row, lane); });
}

extern "C" __global__ void clustar_attention_gradient(
    const clustar::bench::trainer::graph::cuda::AttentionGradientArguments of) {
  using namespace clustar::bench::trainer::graph::cuda;
  const AttentionGeometry& g = of.geometry;
  for_each(g.texts * g.tokens * 3 * g.heads * g.head,
           [&](unsigned long long i) { of.dx[i] = attention_gradient(of, i); });
}
