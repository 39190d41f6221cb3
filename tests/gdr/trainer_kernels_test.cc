// The trainer's kernels on matrices, elements and images.
#include "tests/gdr/trainer_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/image_arguments.h"
#include "tests/half_reference.h"
#include "transport/base/rng.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

struct Product {
  int m, n, k;
};

void check_gemm(const Kernel<GemmArguments>& kernel, bool a_transposed, bool b_transposed) {
  for (const Product& of : {Product{1, 1, 1}, Product{64, 64, 16}, Product{65, 63, 17}, Product{3, 130, 33},
                            Product{129, 5, 100}, Product{10, 20, 0}}) {
    const int m = of.m, n = of.n, k = of.k;
    const Floats a = values(static_cast<std::size_t>(m * k), 1);
    const Floats b = values(static_cast<std::size_t>(k * n), 2);
    const Dim3 grid{static_cast<unsigned>((m + kTile - 1) / kTile), static_cast<unsigned>((n + kTile - 1) / kTile)};
    const Floats c = by_every_order(static_cast<std::size_t>(m * n), [&](Floats& written, std::uint64_t order) {
      launch(kernel, {a.data(), b.data(), written.data(), m, n, k}, grid, order);
    });
    for (int i = 0; i < m * n; ++i) {
      double expected = 0;
      for (int d = 0; d < k; ++d) {
        const int row = i / n;
        const int column = i % n;
        expected += double{a[static_cast<std::size_t>(a_transposed ? d * m + row : row * k + d)]} *
                    double{b[static_cast<std::size_t>(b_transposed ? column * k + d : d * n + column)]};
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(i)], expected, 2e-5) << m << " x " << n << " x " << k << " at " << i;
    }
  }
}

TEST(Gemm, AgreesWithFloat64) {
  check_gemm(kGemmNt, false, true);
  check_gemm(kGemmTn, true, false);
  check_gemm(kGemmNn, false, false);
}

TEST(Columns, AreSummedInOneStageOrTwoAndBiased) {
  for (const unsigned columns : {1u, 10u, 33u, 100u}) {
    for (const std::size_t rows : {1u, 7u, 77u}) {
      for (const std::size_t chunk : {rows, std::size_t{5}, std::size_t{26}}) {
        const Floats all = values(rows * columns, 3);
        const Chunks first{.rows = rows, .chunk = chunk, .columns = columns};
        const Floats parts = by_every_order(sum_grid(first).y * columns, [&](Floats& sums, std::uint64_t order) {
          launch(kColumnSums, {all.data(), sums.data(), first}, sum_grid(first), order);
        });
        const Chunks second{.rows = parts.size() / columns, .chunk = rows, .columns = columns, .divisor = 2};
        Floats halves(columns, 77), biased = all;
        launch(kColumnSums, {parts.data(), halves.data(), second}, sum_grid(second));
        launch(kAddBias, {biased.data(), halves.data(), biased.size(), columns}, {2});
        Doubles sums(parts.size()), totals(columns);
        for (std::size_t i = 0; i < all.size(); ++i) {
          sums[i / columns / chunk * columns + i % columns] += double{all[i]};
          totals[i % columns] += double{all[i]} / 2;
          ASSERT_EQ(biased[i], all[i] + halves[i % columns]);
        }
        expect_near(parts, sums, 1e-5, "a chunk's sums");
        expect_near(halves, totals, 1e-5, "sums / 2");
      }
    }
  }
}

TEST(Relu, PassesWhatIsPositiveAndItsGradient) {
  const Floats x = values(1001, 4);
  const Floats dy = values(1001, 5);
  Floats y(1001), dx(1001);
  launch(kRelu, {x.data(), y.data(), 1001}, {3});
  launch(kReluGradient, {y.data(), dy.data(), dx.data(), 1001}, {3});
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], std::max(x[i], 0.0f));
    EXPECT_EQ(dx[i], x[i] > 0 ? dy[i] : 0.0f);
  }
}

// Every sign and exponent, with fractions on both sides of a 16-bit type's halves; infinities and NaNs.
template <class Half>
void check_rounding(const Kernel<RoundArguments>& kernel) {
  Floats x;
  for (std::uint32_t upper = 0; upper < 0x10000; upper += 3) {
    for (const std::uint32_t lower : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  Floats rounded(x.size(), 77);
  launch(kernel, {x.data(), rounded.data(), x.size()}, {64});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto expected = static_cast<float>(static_cast<double>(Half(double{x[i]})));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(rounded[i])) << x[i];
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded[i]), std::bit_cast<std::uint32_t>(expected)) << x[i];
    }
  }
}

TEST(Rounding, IsThatOfTheTypesDefinition) {
  check_rounding<clustar::tests::Bfloat16>(kRoundBf16);
  check_rounding<clustar::tests::Float16>(kRoundF16);
}

// PyTorch's formula, in float32 as the processor has it (bench/trainer/sgd.h).
TEST(Sgd, HasMomentumAndWeightDecay) {
  constexpr float kRate = 0.1f, kMomentum = 0.9f;
  for (const float decay : {0.0f, 0.01f}) {
    Floats parameters = values(1001, 8), velocity(1001);
    Floats expected = parameters, expected_velocity(1001);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Floats gradients = values(1001, 9 + step);
      launch(kSgd, {parameters.data(), gradients.data(), velocity.data(), 1001, kRate, kMomentum, decay}, {2});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected_velocity[i] = kMomentum * expected_velocity[i] + (gradients[i] + decay * expected[i]);
        expected[i] -= kRate * expected_velocity[i];
      }
    }
    EXPECT_EQ(parameters, expected);
    EXPECT_EQ(velocity, expected_velocity);
  }
}

TEST(Gelu, AndItsGradientAreThoseOfFloat64) {
  Floats x = values(1001, 10);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<float>(i % 7 + 1);
  x[0] = 40;
  x[1] = -40;
  const Floats dy = values(1001, 11);
  Floats y(1001, 77), dx(1001, 77);
  launch(kGelu, {x.data(), y.data(), 1001}, {3});
  launch(kGeluGradient, {x.data(), dy.data(), dx.data(), 1001}, {3});
  const double root = std::sqrt(std::acos(-1.0) / 2);
  Doubles expected, slopes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v{x[i]};
    const double t = std::tanh((v + 0.044715 * v * v * v) / root);
    expected.push_back(v / 2 * (1 + t));
    slopes.push_back(double{dy[i]} * ((1 + t) / 2 + v / 2 * (1 - t * t) * (1 + 3 * 0.044715 * v * v) / root));
  }
  expect_near(y, expected, 2e-6, "output");
  expect_near(dx, slopes, 2e-6, "gradient");
}

TEST(Elements, AreAddedMultipliedAndCopied) {
  for (const std::size_t count : {1u, 255u, 1001u}) {
    const Floats a = values(count, 12);
    const Floats b = values(count, 13);
    Floats sum(count, 77), product(count, 77), copy(count, 77);
    launch(kAdd, {a.data(), b.data(), sum.data(), count}, {3});
    launch(kMultiply, {a.data(), b.data(), product.data(), count}, {3});
    launch(kCopy, {a.data(), copy.data(), count}, {3});
    EXPECT_EQ(copy, a);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(product[i], a[i] * b[i]);
    }
  }
}

TEST(Dropout, DrawsSixteenBitsForEachElement) {
  constexpr std::uint64_t kDraw = 0xfedcba9876543210;
  constexpr unsigned kBelow = 20000;
  for (const std::size_t count : {1u, 6u, 1003u}) {
    const Floats x = values(count, 14);
    Floats y(count, 77), factors(count, 77);
    launch(kDropout, {x.data(), y.data(), factors.data(), count, kDraw, kBelow, 1.5f}, {2});
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = mix64(kDraw + i / 4 * 4 * kGoldenGamma) >> (i % 4 * 16) & 0xffff;
      ASSERT_EQ(factors[i], bits < kBelow ? 0.0f : 1.5f) << i;
      ASSERT_EQ(y[i], x[i] * factors[i]) << i;
    }
  }
}

const WindowGeometry kGeometries[]{
    {.rows = 5, .columns = 7, .channels = 3, .out_rows = 3, .out_columns = 5, .window = 3},
    {.rows = 5, .columns = 4, .channels = 2, .out_rows = 3, .out_columns = 2, .window = 3, .stride = 2, .padding = 1},
    // Rows that no window has, and windows apart from each other.
    {.rows = 8, .columns = 8, .channels = 1, .out_rows = 2, .out_columns = 2, .window = 2, .stride = 4},
    {.rows = 1, .columns = 1, .channels = 4}};
constexpr std::size_t kImages = 3;

// Calls act(image's element, window, element of the window) for all elements of windows that lie in an image.
template <class Act>
void for_window_elements(const WindowGeometry& g, const Act& act) {
  const std::size_t of_window = std::size_t{g.window} * g.window * g.channels;
  for (std::size_t w = 0; w < kImages * g.out_rows * g.out_columns; ++w) {
    const std::size_t image = w / (g.out_rows * g.out_columns);
    for (std::size_t e = 0; e < of_window; ++e) {
      const std::size_t r = w / g.out_columns % g.out_rows * g.stride + e / g.channels / g.window;
      const std::size_t c = w % g.out_columns * g.stride + e / g.channels % g.window;
      if (r < g.padding || c < g.padding || r >= g.rows + g.padding || c >= g.columns + g.padding) continue;
      const std::size_t position = (image * g.rows + r - g.padding) * g.columns + c - g.padding;
      act(position * g.channels + e % g.channels, w, e);
    }
  }
}

TEST(Windows, AreGatheredAndScattered) {
  for (const WindowGeometry& g : kGeometries) {
    const std::size_t of_window = std::size_t{g.window} * g.window * g.channels;
    const std::size_t windows = kImages * g.out_rows * g.out_columns;
    const Floats images = values(kImages * g.rows * g.columns * g.channels, 6);
    Floats gathered(windows * of_window, 77), expected(gathered.size());
    launch(kGatherWindows, {images.data(), gathered.data(), gathered.size(), g}, {2});
    const Floats slopes = values(gathered.size(), 7);
    Floats scattered(images.size(), 77);
    launch(kScatterWindows, {slopes.data(), scattered.data(), scattered.size(), g}, {2});
    std::vector<double> sums(images.size());
    for_window_elements(g, [&](std::size_t at, std::size_t window, std::size_t element) {
      expected[window * of_window + element] = images[at];
      sums[at] += double{slopes[window * of_window + element]};
    });
    EXPECT_EQ(gathered, expected);
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(scattered[i], sums[i], 1e-6) << i;
  }
}

TEST(MaxPool, TakesTheLargestAndGivesItTheGradient) {
  for (const WindowGeometry& g : kGeometries) {
    Floats x = values(kImages * g.rows * g.columns * g.channels, 8);
    for (float& one : x) one = std::round(one * 3);  // many are equal
    const std::size_t outputs = kImages * g.out_rows * g.out_columns * g.channels;
    const Floats dy = values(outputs, 9);
    Floats y(outputs, 77), dx(x.size(), 77), expected(outputs, -1000);
    std::vector<unsigned> sources(outputs, 77);
    launch(kMaxPool, {x.data(), y.data(), sources.data(), outputs, g}, {2});
    launch(kMaxPoolGradient, {sources.data(), dy.data(), dx.data(), dx.size(), g}, {2});
    std::vector<std::size_t> from(outputs);
    for_window_elements(g, [&](std::size_t at, std::size_t window, std::size_t element) {
      const std::size_t out = window * g.channels + element % g.channels;
      if (!(x[at] > expected[out])) return;
      expected[out] = x[at];
      from[out] = at;
    });
    EXPECT_EQ(y, expected);
    std::vector<double> sums(x.size());
    for (std::size_t i = 0; i < outputs; ++i) sums[from[i]] += double{dy[i]};
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(dx[i], sums[i], 1e-6) << i;
    // Evaluation has no place for sources.
    Floats again(outputs, 77);
    launch(kMaxPool, {x.data(), again.data(), nullptr, outputs, g}, {2});
    EXPECT_EQ(again, expected);
  }
}

// Of place `out` along one side: the input's places floor(out ins/outs) to ceil((out + 1) ins/outs) - 1.
bool is_averaged(unsigned in, unsigned out, unsigned ins, unsigned outs) {
  const double step = static_cast<double>(ins) / outs;
  return in >= std::floor(out * step + 1e-9) && in < std::ceil((out + 1) * step - 1e-9);
}

TEST(AveragePool, TakesMeansAndSharesTheirGradients) {
  for (const PoolGeometry& g : {PoolGeometry{5, 7, 3, 3, 2}, PoolGeometry{1, 1, 4, 6, 6}, PoolGeometry{2, 3, 1, 7, 7},
                                PoolGeometry{7, 7, 5, 1, 1}, PoolGeometry{9, 4, 2, 4, 4}}) {
    const std::size_t places = g.rows * g.columns;
    const std::size_t outs = g.out_rows * g.out_columns;
    const Floats x = values(kImages * places * g.channels, 15);
    const Floats dy = values(kImages * outs * g.channels, 16);
    Floats y(dy.size(), 77), dx(x.size(), 77);
    launch(kAveragePool, {x.data(), y.data(), y.size(), g}, {2});
    launch(kAveragePoolGradient, {dy.data(), dx.data(), dx.size(), g}, {2});
    Doubles means(dy.size()), slopes(x.size());
    for (std::size_t o = 0; o < dy.size(); ++o) {
      const auto at = static_cast<unsigned>(o / g.channels % outs);
      std::vector<std::size_t> averaged;
      for (unsigned p = 0; p < places; ++p) {
        if (!is_averaged(p / g.columns, at / g.out_columns, g.rows, g.out_rows)) continue;
        if (!is_averaged(p % g.columns, at % g.out_columns, g.columns, g.out_columns)) continue;
        averaged.push_back((o / g.channels / outs * places + p) * g.channels + o % g.channels);
      }
      const auto count = static_cast<double>(averaged.size());
      for (const std::size_t i : averaged) means[o] += double{x[i]} / count;
      for (const std::size_t i : averaged) slopes[i] += double{dy[o]} / count;
    }
    expect_near(y, means, 1e-6, "means");
    expect_near(dx, slopes, 2e-6, "gradients");
  }
}

}  // namespace
}  // namespace clustar::bench::trainer::graph::cuda
