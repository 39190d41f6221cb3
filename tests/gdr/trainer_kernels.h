// For tests of the trainer's kernels by themselves: against float64 and with odd sizes, on memory of exactly the size
// that they may touch, so that under AddressSanitizer every access is looked at. As a DeviceMath:
// tests/trainer/graph/kernels_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/trainer/graph/cuda/arguments.h"
#include "tests/gdr/emulated_device/block.h"

namespace clustar::bench::trainer::graph::cuda {

using emulated::Dim3;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline constexpr std::uint64_t kOrders[]{0, 1, 7};  // of threads

template <class Argument>
void launch(const Kernel<Argument>& kernel, const Argument& argument, const Dim3& grid, std::uint64_t order = 0) {
  const emulated::KernelEntry* entry = emulated::find_kernel(kernel.name);
  ASSERT_NE(entry, nullptr) << kernel.name;
  ASSERT_EQ(entry->argument_bytes, sizeof(Argument)) << kernel.name;
  EXPECT_EQ(emulated::run(*entry, grid, Dim3{kThreads}, &argument, order), "");
}

inline Floats values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats all(count);
  for (float& one : all) one = uniform(random);
  return all;
}

// What run(values, order) writes into `count` of them, which has to be the same for every order of threads.
template <class Run>
Floats by_every_order(std::size_t count, const Run& run) {
  Floats first;
  for (const std::uint64_t order : kOrders) {
    Floats written(count, 77);
    run(written, order);
    if (first.empty()) first = written;
    EXPECT_EQ(written, first) << "order " << order << ": a race";
  }
  return first;
}

inline void expect_near(const Floats& written, const Doubles& expected, double bound, const char* what) {
  ASSERT_EQ(written.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(written[i], expected[i], bound) << what << " at " << i;
}

inline Dim3 sum_grid(const Chunks& chunks) {
  return {(chunks.columns + kSumColumns - 1) / kSumColumns,
          static_cast<unsigned>((chunks.rows + chunks.chunk - 1) / chunks.chunk)};
}

}  // namespace clustar::bench::trainer::graph::cuda
