// Products of matrices against their definition.
#include "bench/trainer/graph/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::bench::trainer::graph {
namespace {

std::vector<float> random_values(std::size_t count, clustar::Rng& rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(2 * rng.uniform() - 1);
  return values;
}

// Straight from the definition, in double.
std::vector<double> exact_gemm(const GemmShape& shape, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> c(shape.m * shape.n);
  for (std::size_t i = 0; i < shape.m; ++i) {
    for (std::size_t j = 0; j < shape.n; ++j) {
      for (std::size_t p = 0; p < shape.k; ++p) {
        const float x = shape.a == Trans::kYes ? a[p * shape.m + i] : a[i * shape.k + p];
        const float y = shape.b == Trans::kYes ? b[j * shape.k + p] : b[p * shape.n + j];
        c[i * shape.n + j] += double{x} * double{y};
      }
    }
  }
  return c;
}

class PlainGemm : public ::testing::TestWithParam<std::tuple<Trans, Trans>> {};

TEST_P(PlainGemm, AgreesWithTheDefinition) {
  clustar::Rng rng(3);
  const std::size_t shapes[][3] = {{1, 1, 1}, {5, 3, 7}, {4, 10, 784}, {33, 65, 129}, {10, 512, 16}, {128, 10, 64}};
  for (const auto& [m, n, k] : shapes) {
    const GemmShape shape{std::get<0>(GetParam()), std::get<1>(GetParam()), m, n, k};
    const std::vector<float> a = random_values(m * k, rng);
    const std::vector<float> b = random_values(k * n, rng);
    const std::vector<double> expected = exact_gemm(shape, a, b);
    std::vector<float> plain(m * n, 99.0f);
    plain_gemm(shape, a.data(), b.data(), plain.data());
    const double tolerance = 1e-6 * static_cast<double>(k) + 1e-6;
    for (std::size_t i = 0; i < m * n; ++i) {
      ASSERT_NEAR(plain[i], expected[i], tolerance) << m << "x" << n << "x" << k << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTranspositions, PlainGemm,
                         ::testing::Combine(::testing::Values(Trans::kNo, Trans::kYes),
                                            ::testing::Values(Trans::kNo, Trans::kYes)));

TEST(PlainGemmEdges, DepthZeroGivesZeros) {
  std::vector<float> c(6, 5.0f);
  const float unused = 0;
  plain_gemm({Trans::kYes, Trans::kNo, 2, 3, 0}, &unused, &unused, c.data());
  EXPECT_THAT(c, ::testing::Each(0.0f));
}

}  // namespace
}  // namespace clustar::bench::trainer::graph
