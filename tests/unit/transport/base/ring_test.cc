#include "transport/base/ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace clustar {
namespace {

TEST(Ring, BehavesAsAQueueAcrossGrowthAndWrapping) {
  std::mt19937 random(1);
  Ring<int> ring;
  std::deque<int> model;
  for (int step = 0; step < 10000; ++step) {
    // Alternating phases of filling and draining make it wrap at many sizes.
    const bool push = model.empty() || random() % 100 < (step / 500 % 2 == 0 ? 70u : 30u);
    if (push) {
      ring.push_back(step);
      model.push_back(step);
    } else {
      ASSERT_EQ(ring.front(), model.front());
      ASSERT_EQ(ring.pop_front(), model.front());
      model.pop_front();
    }
    ASSERT_EQ(ring.size(), model.size());
    ASSERT_EQ(ring.empty(), model.empty());
  }
}

}  // namespace
}  // namespace clustar
