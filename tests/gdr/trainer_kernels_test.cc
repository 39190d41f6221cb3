// The trainer's kernels by themselves, against float64 and with odd sizes, on memory of exactly the size that they may
// touch: under AddressSanitizer every access is looked at. As a DeviceMath: tests/trainer/graph/kernels_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/trainer/graph/cuda/arguments.h"
#include "tests/gdr/emulated_device/block.h"
#include "tests/half_reference.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using emulated::Dim3;
using Floats = std::vector<float>;

constexpr std::uint64_t kOrders[]{0, 1, 7};

template <class Argument>
void launch(const Kernel<Argument>& kernel, const Argument& argument, const Dim3& grid, std::uint64_t order = 0) {
  const emulated::KernelEntry* entry = emulated::find_kernel(kernel.name);
  ASSERT_NE(entry, nullptr) << kernel.name;
  ASSERT_EQ(entry->argument_bytes, sizeof(Argument)) << kernel.name;
  EXPECT_EQ(emulated::run(*entry, grid, Dim3{kThreads}, &argument, order), "");
}

Floats values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats all(count);
  for (float& one : all) one = uniform(random);
  return all;
}

struct Product {
  int m, n, k;
};

void check_gemm(const Kernel<GemmArguments>& kernel, bool a_transposed, bool b_transposed) {
  for (const auto& [m, n, k] : {Product{1, 1, 1}, Product{64, 64, 16}, Product{65, 63, 17}, Product{3, 130, 33},
                                Product{129, 5, 100}, Product{10, 20, 0}}) {
    const Floats a = values(static_cast<std::size_t>(m * k), 1);
    const Floats b = values(static_cast<std::size_t>(k * n), 2);
    Floats first;
    for (const std::uint64_t order : kOrders) {
      Floats c(static_cast<std::size_t>(m * n), 77);
      launch(kernel, {a.data(), b.data(), c.data(), m, n, k},
             {static_cast<unsigned>((m + kTile - 1) / kTile), static_cast<unsigned>((n + kTile - 1) / kTile)}, order);
      if (first.empty()) first = c;
      ASSERT_EQ(c, first) << "order " << order << ": a race";
    }
    for (int i = 0; i < m * n; ++i) {
      double expected = 0;
      for (int d = 0; d < k; ++d) {
        const int row = i / n;
        const int column = i % n;
        expected += double{a[static_cast<std::size_t>(a_transposed ? d * m + row : row * k + d)]} *
                    double{b[static_cast<std::size_t>(b_transposed ? column * k + d : d * n + column)]};
      }
      ASSERT_NEAR(first[static_cast<std::size_t>(i)], expected, 2e-5) << m << " x " << n << " x " << k << " at " << i;
    }
  }
}

TEST(Gemm, AgreesWithFloat64) {
  check_gemm(kGemmNt, false, true);
  check_gemm(kGemmTn, true, false);
  check_gemm(kGemmNn, false, false);
}

TEST(Columns, AreSummedAndBiased) {
  for (const unsigned columns : {1u, 10u, 33u, 100u}) {
    for (const std::size_t rows : {1u, 7u, 77u}) {
      const Floats all = values(rows * columns, 3);
      Floats first;
      for (const std::uint64_t order : kOrders) {
        Floats sums(columns, 77);
        launch(kColumnSums, {all.data(), sums.data(), rows, columns}, {(columns + kSumColumns - 1) / kSumColumns},
               order);
        if (first.empty()) first = sums;
        ASSERT_EQ(sums, first) << "order " << order << ": a race";
      }
      Floats biased = all;
      launch(kAddBias, {biased.data(), first.data(), biased.size(), columns}, {2});
      for (unsigned c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r) {
          sum += double{all[r * columns + c]};
          ASSERT_EQ(biased[r * columns + c], all[r * columns + c] + first[c]);
        }
        ASSERT_NEAR(first[c], sum, 1e-5);
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

}  // namespace
}  // namespace clustar::bench::trainer::graph::cuda
