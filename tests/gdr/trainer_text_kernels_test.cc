// The trainer's kernels on texts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/trainer/graph/cuda/text_arguments.h"
#include "tests/gdr/trainer_kernels.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

TEST(Embedding, AddsWordAndPlaceAndSumsGradientsByWord) {
  constexpr unsigned kVocabulary = 7, kTokens = 5, kWidth = 13;
  constexpr std::size_t kTexts = 9;
  Floats numbers(kTexts * kTokens);
  for (std::size_t t = 0; t < numbers.size(); ++t) numbers[t] = static_cast<float>(t * t % 9);  // 7 and 8 are beyond
  const auto word = [&](std::size_t t) { return std::min<std::size_t>(t * t % 9, kVocabulary - 1); };
  const Floats words = values(kVocabulary * kWidth, 40), places = values(kTokens * kWidth, 41);
  const Floats dy = values(numbers.size() * kWidth, 42);
  Floats y(dy.size(), 77), gradient(words.size(), 77);
  launch(kEmbedding, {numbers.data(), words.data(), places.data(), y.data(), y.size(), kVocabulary, kTokens, kWidth},
         {2});
  launch(kEmbeddingGradient, {numbers.data(), dy.data(), gradient.data(), numbers.size(), kVocabulary, kWidth}, {1});
  Doubles expected(words.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t t = i / kWidth;
    ASSERT_EQ(y[i], words[word(t) * kWidth + i % kWidth] + places[t % kTokens * kWidth + i % kWidth]);
    expected[word(t) * kWidth + i % kWidth] += double{dy[i]};
  }
  expect_near(gradient, expected, 5e-6, "gradient");
}

// One matrix of attention in float64: of one head of one text.
struct Head {
  std::size_t tokens, head;
  Doubles q, k, v, dy;  // tokens x head
  double scale;
  Doubles weights, slopes;  // tokens x tokens
  Doubles y, dq, dk, dv;

  void compute() {
    weights.assign(tokens * tokens, 0);
    slopes = weights;
    y.assign(tokens * head, 0);
    dq = dk = dv = y;
    for (std::size_t t = 0; t < tokens; ++t) forward(t);
    for (std::size_t t = 0; t < tokens; ++t) backward(t);
  }

 private:
  double dot(const Doubles& a, std::size_t t, const Doubles& b, std::size_t u) const {
    double sum = 0;
    for (std::size_t i = 0; i < head; ++i) sum += a[t * head + i] * b[u * head + i];
    return sum;
  }
  void forward(std::size_t t) {
    double sum = 0;
    for (std::size_t j = 0; j <= t; ++j) sum += weights[t * tokens + j] = std::exp(scale * dot(q, t, k, j));
    for (std::size_t j = 0; j <= t; ++j) {
      weights[t * tokens + j] /= sum;
      for (std::size_t i = 0; i < head; ++i) y[t * head + i] += weights[t * tokens + j] * v[j * head + i];
    }
  }
  // Of y t by the definition of softmax: d weight j / d score l = weight j ((j == l) - weight l).
  void backward(std::size_t t) {
    for (std::size_t l = 0; l <= t; ++l) {
      for (std::size_t j = 0; j <= t; ++j) {
        const double both = weights[t * tokens + j] * ((j == l ? 1 : 0) - weights[t * tokens + l]);
        slopes[t * tokens + l] += dot(dy, t, v, j) * both;
      }
      for (std::size_t i = 0; i < head; ++i) {
        dq[t * head + i] += scale * slopes[t * tokens + l] * k[l * head + i];
        dk[l * head + i] += scale * slopes[t * tokens + l] * q[t * head + i];
        dv[l * head + i] += weights[t * tokens + l] * dy[t * head + i];
      }
    }
  }
};

struct AttentionRun {
  AttentionGeometry g;
  Floats x, dy, weights, slopes, y, dx;

  // What is above the diagonal must not matter: it is not a number.
  explicit AttentionRun(const AttentionGeometry& geometry)
      : g(geometry),
        x(values(places() * 3, 43)),
        dy(values(places(), 44)),
        weights(g.texts * g.heads * g.tokens * g.tokens, std::numeric_limits<float>::quiet_NaN()),
        slopes(weights) {
    for (float& one : x) one *= 2;
    Dim3 grid{3};
    const Floats before = weights;
    for (const std::uint64_t order : kOrders) {
      Floats again = before;
      launch(kAttentionWeights, {x.data(), again.data(), g}, grid, order);
      if (order == kOrders[0]) weights = again;
      expect_same_triangles(again, weights);
    }
    y = by_every_order(dy.size(), [&](Floats& written, std::uint64_t order) {
      launch(kAttentionOutput, {x.data(), weights.data(), written.data(), g}, grid, order);
    });
    for (const std::uint64_t order : kOrders) {
      Floats again = before;
      launch(kAttentionSlopes, {x.data(), dy.data(), weights.data(), again.data(), g}, grid, order);
      if (order == kOrders[0]) slopes = again;
      expect_same_triangles(again, slopes);
    }
    dx = by_every_order(x.size(), [&](Floats& written, std::uint64_t order) {
      launch(kAttentionGradient, {x.data(), dy.data(), weights.data(), slopes.data(), written.data(), g}, grid, order);
    });
  }

  std::size_t places() const { return g.texts * g.tokens * g.heads * g.head; }
  bool is_before(std::size_t i) const { return i % g.tokens <= i / g.tokens % g.tokens; }
  void expect_same_triangles(const Floats& one, const Floats& other) const {
    for (std::size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(std::isnan(one[i]), !is_before(i)) << i;
      ASSERT_TRUE(!is_before(i) || one[i] == other[i]) << i << ": a race";
    }
  }
  // Where the head's value `i` of a token is in y; in x it is the token's `part`.
  std::size_t in_y(std::size_t text, std::size_t head, std::size_t i) const {
    return (text * g.tokens + i / g.head) * g.heads * g.head + head * g.head + i % g.head;
  }
  std::size_t in_x(std::size_t text, std::size_t head, std::size_t part, std::size_t i) const {
    const std::size_t width = g.heads * g.head;
    return ((text * g.tokens + i / g.head) * 3 + part) * width + head * g.head + i % g.head;
  }
  Head expected(std::size_t text, std::size_t head) const {
    Head result{g.tokens, g.head, {}, {}, {}, {}, double{g.scale}, {}, {}, {}, {}, {}, {}};
    for (std::size_t i = 0; i < std::size_t{g.tokens} * g.head; ++i) {
      result.q.push_back(double{x[in_x(text, head, 0, i)]});
      result.k.push_back(double{x[in_x(text, head, 1, i)]});
      result.v.push_back(double{x[in_x(text, head, 2, i)]});
      result.dy.push_back(double{dy[in_y(text, head, i)]});
    }
    result.compute();
    return result;
  }
};

TEST(Attention, AndItsGradientsAreThoseOfFloat64) {
  for (const AttentionGeometry& g : {AttentionGeometry{1, 1, 1, 1, 1}, AttentionGeometry{3, 5, 2, 3, 0.5f},
                                     AttentionGeometry{1, 33, 1, 7, 0.4f}, AttentionGeometry{2, 70, 3, 2, 0.7f}}) {
    const AttentionRun run(g);
    for (std::size_t matrix = 0; matrix < g.texts * g.heads; ++matrix) {
      const std::size_t text = matrix / g.heads;
      const std::size_t head = matrix % g.heads;
      const Head expected = run.expected(text, head);
      for (std::size_t i = 0; i < std::size_t{g.tokens} * g.tokens; ++i) {
        const std::size_t at = matrix * g.tokens * g.tokens + i;
        if (!run.is_before(at)) continue;
        ASSERT_NEAR(run.weights[at], expected.weights[i], 2e-6) << at;
        ASSERT_NEAR(run.slopes[at], expected.slopes[i], 5e-6) << at;
      }
      for (std::size_t i = 0; i < expected.y.size(); ++i) {
        ASSERT_NEAR(run.y[run.in_y(text, head, i)], expected.y[i], 5e-6) << i;
        ASSERT_NEAR(run.dx[run.in_x(text, head, 0, i)], expected.dq[i], 2e-5) << i;
        ASSERT_NEAR(run.dx[run.in_x(text, head, 1, i)], expected.dk[i], 2e-5) << i;
        ASSERT_NEAR(run.dx[run.in_x(text, head, 2, i)], expected.dv[i], 2e-5) << i;
      }
    }
  }
}

}  // namespace
}  // namespace clustar::bench::trainer::graph::cuda
