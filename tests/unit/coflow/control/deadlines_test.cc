#include "coflow/control/core/deadlines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "transport/base/rng.h"

namespace clustar::coflow::control {
namespace {

TEST(Deadlines, WhatFitsIsPromisedInOrderOfComing) {
  const std::vector<DeadlineClaim> claims{{false, 2, 1.0, {{0, 0.5}}},
                                          {false, 1, 1.0, {{0, 0.3}}},
                                          {false, 3, 1.0, {{0, 0.1}}},
                                          {false, 4, 1.0, {{1, 0.8}}}};
  EXPECT_EQ(promise(claims, 2), (std::vector<bool>{true, true, false, true}));
}

TEST(Deadlines, APromiseIsKeptWhoeverCameFirst) {
  std::vector<DeadlineClaim> claims{{false, 1, 1.0, {{0, 0.5}}}, {true, 2, 1.0, {{0, 0.5}}}};
  EXPECT_EQ(promise(claims, 1), (std::vector<bool>{false, true}));
  claims[1].loads[0].bytes = 0.9;  // it has grown: there is no room for it any more
  EXPECT_EQ(promise(claims, 1), (std::vector<bool>{true, false}));
}

TEST(Deadlines, OneThatCannotBeKeptAloneIsRefused) {
  EXPECT_EQ(promise(std::vector<DeadlineClaim>{{false, 1, 0.1, {{0, 0.2}}}}, 1), std::vector<bool>{false});
}

// One port, jobs of any periods that were promised theirs: the earliest deadline first meets each of them.
TEST(Deadlines, PromisesAreKeptAtOnePort) {
  constexpr double kStep = 0.001;
  int promised = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    struct Job {
      double period, needs, within, next, left = 0, due = 0;
    };
    std::vector<Job> jobs;
    std::vector<DeadlineClaim> claims;
    for (std::uint64_t i = 0; i < 5; ++i) {
      const double period = 0.1 + 0.001 * static_cast<double>(rng.below(400));
      const double within = period * (0.5 + 0.005 * static_cast<double>(rng.below(100)));
      const double needs = within * 0.005 * static_cast<double>(1 + rng.below(100));
      claims.push_back({false, i, within, {{0, needs}}});
      jobs.push_back({period, needs, within, 0.001 * static_cast<double>(rng.below(300))});
    }
    const auto kept = promise(claims, 1);
    for (std::size_t i = jobs.size(); i-- > 0;) {
      if (!kept[i]) jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
    }
    promised += static_cast<int>(jobs.size());
    for (double now = 0; now < 5; now += kStep) {
      Job* first = nullptr;
      for (Job& job : jobs) {
        if (now >= job.next) {
          ASSERT_LE(job.left, 0) << "seed " << seed;
          job.left = job.needs;
          job.due = job.next + job.within;
          job.next += job.period;
        }
        ASSERT_FALSE(job.left > 0 && now > job.due + kStep) << "seed " << seed;
        if (job.left > 0 && (first == nullptr || job.due < first->due)) first = &job;
      }
      if (first != nullptr) first->left -= kStep;
    }
  }
  EXPECT_GT(promised, 300);
}

}  // namespace
}  // namespace clustar::coflow::control
