// The trainer's kernels of normalisations.
#include <cmath>

#include "bench/trainer/graph/cuda/dense_arguments.h"
#include "bench/trainer/graph/cuda/norm_arguments.h"
#include "tests/gdr/trainer_kernels.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr float kMomentum = 0.1f;
constexpr float kFar = 1000;  // of values from zero: a variance by the mean of squares would have no right digit

// Mean and biased variance, straight from their definition.
struct Moments {
  double mean = 0, variance = 0;

  Moments(const Floats& x, std::size_t first, std::size_t stride, std::size_t count) {
    const auto all = static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i) mean += double{x[first + i * stride]} / all;
    for (std::size_t i = 0; i < count; ++i) variance += std::pow(double{x[first + i * stride]} - mean, 2) / all;
  }
  double inverse() const { return 1 / std::sqrt(variance + double{kEpsilon}); }
};

struct Case {
  std::size_t rows;
  unsigned channels;
  std::size_t chunk;
};
constexpr Case kCases[]{{1, 1, 1}, {2, 5, 2}, {77, 33, 77}, {77, 33, 10}, {130, 64, 129}, {9, 100, 4}};

Floats far_values(const Case& of, std::uint64_t seed) {
  Floats x = values(of.rows * of.channels, seed);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % of.channels % 3) * kFar;
  return x;
}

// The second stage of sums of columns.
Floats finished(const Floats& parts, unsigned columns, float divisor) {
  Floats sums(columns, 77);
  const std::size_t rows = parts.size() / columns;
  const Chunks chunks{.rows = rows, .chunk = rows, .columns = columns, .divisor = divisor};
  launch(kColumnSums, {parts.data(), sums.data(), chunks}, sum_grid(chunks));
  return sums;
}

TEST(BatchNorm, MeasuresTheVarianceOfValuesFarFromZero) {
  for (const Case& of : kCases) {
    const Floats x = far_values(of, 20);
    Floats mean;
    for (unsigned c = 0; c < of.channels; ++c) {
      mean.push_back(static_cast<float>(Moments(x, c, of.channels, of.rows).mean));
    }
    const Chunks chunks{.rows = of.rows, .chunk = of.chunk, .columns = of.channels};
    const Floats parts = by_every_order(sum_grid(chunks).y * of.channels, [&](Floats& squares, std::uint64_t order) {
      launch(kBatchNormSquares, {x.data(), mean.data(), squares.data(), chunks}, sum_grid(chunks), order);
    });
    const Floats variance = finished(parts, of.channels, static_cast<float>(of.rows));
    Doubles expected;
    for (unsigned c = 0; c < of.channels; ++c) expected.push_back(Moments(x, c, of.channels, of.rows).variance);
    expect_near(variance, expected, 2e-5, "variance");
  }
}

TEST(BatchNorm, TakesTheBatchsStatisticsOrTheRunningOnes) {
  constexpr unsigned kChannels = 301;
  const Floats mean = values(kChannels, 21), scale = values(kChannels, 22), shift = values(kChannels, 23);
  const Floats running_mean = values(kChannels, 24);
  Floats variance = values(kChannels, 25), running_variance = values(kChannels, 26);
  for (float& one : variance) one *= one;
  for (float& one : running_variance) one *= one;
  for (const unsigned long long rows : {1ull, 9ull}) {
    for (const bool training : {true, false}) {
      Floats new_mean = running_mean, new_variance = running_variance;
      Floats inverse(kChannels, 77), factor(kChannels, 77), summand(kChannels, 77);
      launch(kBatchNormFactors,
             {training ? mean.data() : nullptr, variance.data(), scale.data(), shift.data(), new_mean.data(),
              new_variance.data(), training ? inverse.data() : nullptr, factor.data(), summand.data(), rows, kChannels,
              kEpsilon, kMomentum},
             {2});
      const double unbiased = rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1;
      for (unsigned c = 0; c < kChannels; ++c) {
        const double used = double{training ? variance[c] : running_variance[c]} + double{kEpsilon};
        const double expected = double{scale[c]} / std::sqrt(used);
        ASSERT_NEAR(factor[c], expected, 1e-6 * (1 + std::abs(expected)));
        ASSERT_NEAR(summand[c], double{shift[c]} - double{training ? mean[c] : running_mean[c]} * expected,
                    1e-6 * (1 + std::abs(expected)));
        ASSERT_NEAR(double{inverse[c]} * std::sqrt(used), training ? 1 : 77 * std::sqrt(used), 1e-6);
        ASSERT_NEAR(new_mean[c], training ? 0.9 * double{running_mean[c]} + 0.1 * double{mean[c]} : running_mean[c],
                    1e-6);
        ASSERT_NEAR(
            new_variance[c],
            training ? 0.9 * double{running_variance[c]} + 0.1 * unbiased * double{variance[c]} : running_variance[c],
            1e-6);
      }
    }
  }
}

TEST(BatchNorm, ScalesAndShiftsEachChannel) {
  for (const Case& of : kCases) {
    const Floats x = values(of.rows * of.channels, 27);
    const Floats factor = values(of.channels, 28), summand = values(of.channels, 29);
    Floats y(x.size(), 77);
    launch(kScaleColumns, {x.data(), factor.data(), summand.data(), y.data(), y.size(), of.channels}, {2});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % of.channels;
      ASSERT_NEAR(y[i], double{x[i]} * double{factor[c]} + double{summand[c]}, 1e-6);
    }
  }
}

TEST(BatchNorm, GradientsAreThoseOfFloat64) {
  for (const Case& of : kCases) {
    const unsigned channels = of.channels;
    const Floats x = values(of.rows * channels, 30), dy = values(of.rows * channels, 31), scale = values(channels, 32);
    Floats mean, inverse;
    for (unsigned c = 0; c < channels; ++c) {
      const Moments moments(x, c, channels, of.rows);
      mean.push_back(static_cast<float>(moments.mean));
      inverse.push_back(static_cast<float>(moments.inverse()));
    }
    const Chunks chunks{.rows = of.rows, .chunk = of.chunk, .columns = channels};
    const std::size_t parts = sum_grid(chunks).y * channels;
    Floats shift_parts(parts, 77);
    const Floats scale_parts = by_every_order(parts, [&](Floats& sums, std::uint64_t order) {
      launch(kBatchNormSlopes, {x.data(), dy.data(), mean.data(), sums.data(), shift_parts.data(), chunks},
             sum_grid(chunks), order);
    });
    const Floats scale_sums = finished(scale_parts, channels, 1), shift_sums = finished(shift_parts, channels, 1);
    Floats scale_gradient(channels, 77), shift_gradient(channels, 77), slope(channels, 77), along(channels, 77);
    launch(kBatchNormTotals,
           {scale_sums.data(), shift_sums.data(), inverse.data(), scale_gradient.data(), shift_gradient.data(),
            slope.data(), along.data(), of.rows, channels},
           {1});
    Floats dx(x.size(), 77);
    launch(kBatchNormGradient,
           {x.data(), dy.data(), scale.data(), mean.data(), inverse.data(), slope.data(), along.data(), dx.data(),
            dx.size(), channels},
           {2});
    Doubles of_scale(channels), of_shift(channels), slopes;
    const auto normalised = [&](std::size_t i) {
      return (double{x[i]} - double{mean[i % channels]}) * double{inverse[i % channels]};
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      of_scale[i % channels] += double{dy[i]} * normalised(i);
      of_shift[i % channels] += double{dy[i]};
    }
    const auto rows = static_cast<double>(of.rows);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % channels;
      const double centred = double{dy[i]} - of_shift[c] / rows - normalised(i) * of_scale[c] / rows;
      slopes.push_back(double{scale[c]} * double{inverse[c]} * centred);
    }
    expect_near(scale_gradient, of_scale, 3e-5, "gradient of the scale");
    expect_near(shift_gradient, of_shift, 1e-5, "gradient of the shift");
    // Of one row alone 1 / deviation is 316, and rounding as much larger.
    expect_near(dx, slopes, of.rows == 1 ? 1e-4 : 2e-5, "gradient of the input");
  }
}

TEST(LayerNorm, AndItsGradientsAreThoseOfFloat64) {
  for (const unsigned channels : {1u, 5u, 31u, 32u, 33u, 100u}) {
    constexpr std::size_t kRows = 21;
    const Floats x = far_values({kRows, channels, 1}, 33), dy = values(kRows * channels, 34);
    const Floats scale = values(channels, 35), shift = values(channels, 36);
    Floats saved(2 * kRows, 77), unsaved(x.size(), 77);
    const Floats y = by_every_order(x.size(), [&](Floats& written, std::uint64_t order) {
      launch(kLayerNorm,
             {x.data(), scale.data(), shift.data(), written.data(), saved.data(), kRows, channels, kEpsilon}, {2},
             order);
    });
    launch(kLayerNorm, {x.data(), scale.data(), shift.data(), unsaved.data(), nullptr, kRows, channels, kEpsilon}, {1});
    EXPECT_EQ(unsaved, y);
    const Chunks chunks{.rows = kRows, .chunk = 8, .columns = channels};
    Floats shift_parts(3 * channels, 77);
    const Floats scale_parts = by_every_order(3 * channels, [&](Floats& sums, std::uint64_t order) {
      launch(kLayerNormSlopes, {x.data(), dy.data(), saved.data(), sums.data(), shift_parts.data(), chunks},
             sum_grid(chunks), order);
    });
    const Floats dx = by_every_order(x.size(), [&](Floats& written, std::uint64_t order) {
      launch(kLayerNormGradient, {x.data(), dy.data(), scale.data(), saved.data(), written.data(), kRows, channels},
             {2}, order);
    });
    Doubles outputs, of_scale(channels), of_shift(channels), slopes;
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::size_t first = row * channels;
      const Moments moments(x, first, 1, channels);
      const auto normalised = [&](std::size_t c) { return (double{x[first + c]} - moments.mean) * moments.inverse(); };
      double mean_g = 0, mean_along = 0;
      for (unsigned c = 0; c < channels; ++c) {
        const double slope{dy[first + c]};
        outputs.push_back(normalised(c) * double{scale[c]} + double{shift[c]});
        of_scale[c] += slope * normalised(c);
        of_shift[c] += slope;
        mean_g += slope * double{scale[c]} / channels;
        mean_along += slope * double{scale[c]} * normalised(c) / channels;
      }
      for (unsigned c = 0; c < channels; ++c) {
        slopes.push_back(moments.inverse() *
                         (double{dy[first + c]} * double{scale[c]} - mean_g - normalised(c) * mean_along));
      }
    }
    expect_near(y, outputs, 1e-4, "output");
    expect_near(finished(scale_parts, channels, 1), of_scale, 1e-3, "gradient of the scale");
    expect_near(finished(shift_parts, channels, 1), of_shift, 1e-5, "gradient of the shift");
    expect_near(dx, slopes, 1e-4, "gradient of the input");
  }
}

}  // namespace
}  // namespace clustar::bench::trainer::graph::cuda
