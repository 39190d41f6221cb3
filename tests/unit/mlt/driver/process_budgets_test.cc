#include "mlt/driver/process_budgets.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace clustar::mlt::driver {
namespace {

constexpr Terms kTerms{.collective_bytes = 1'000'000, .ranks = 4, .edges = 4, .tolerance_ppm = 10'000};

TEST(MltProcessBudgets, OfACommunicatorTheyLiveUntilItsLastEngineLeaves) {
  ProcessBudgets budgets;
  JointBudgets& received = *budgets.joint().received;
  budgets.enter(1);
  budgets.enter(1);
  const auto first = received.open({1, 5}, kTerms);
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(first->charge(10'000));
  budgets.leave(1);
  EXPECT_EQ(received.open({1, 5}, kTerms), first) << "another engine has connections: no second budget";
  budgets.leave(1);
  budgets.enter(1);
  const auto next = received.open({1, 5}, kTerms);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->left(), 10'000u) << "a communicator with the same id";
  budgets.leave(1);
}

TEST(MltProcessBudgets, WhatIsSentIsCountedApart) {
  ProcessBudgets budgets;
  const Endpoint::Joint joint = budgets.joint();
  const auto received = joint.received->open({1, 5}, kTerms);
  const auto sent = joint.sent->open({1, 5}, kTerms);
  ASSERT_TRUE(received != nullptr && sent != nullptr);
  EXPECT_TRUE(received->charge(10'000));
  EXPECT_EQ(sent->left(), 10'000u);
}

// Engines have threads of their own: each contribution goes to one of them.
TEST(MltProcessBudgets, ThreadsShareOneToTheLastByte) {
  constexpr Terms kLarge{.collective_bytes = 400'000'000, .ranks = 4, .edges = 4, .tolerance_ppm = 10'000};
  ProcessBudgets budgets;
  std::atomic<std::uint64_t> charged{0};
  std::vector<std::thread> threads;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    threads.emplace_back([&, step] {
      budgets.enter(1);
      const auto budget = budgets.joint().received->open({1, 5}, kLarge);
      std::uint64_t mine = 0;
      while (budget->charge(step)) mine += step;
      while (budget->charge(1)) ++mine;
      charged += mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(charged, loss_bound(kLarge));
}

}  // namespace
}  // namespace clustar::mlt::driver
