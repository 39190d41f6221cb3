// Training steps whose sums are made here: what is read out of them, and that replicas stay alike or are told apart.
#include "tests/gpu/lossy_replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tests/gpu/plugin_ledger.h"

namespace clustar::nccl_check {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kElements = 5000;

struct World {
  std::vector<LossyReplica> replicas;
  std::vector<std::vector<float>> gradients;

  explicit World(int size) {
    for (int rank = 0; rank < size; ++rank) replicas.emplace_back(kElements, rank, size);
    gradients.assign(replicas.size(), std::vector<float>(kElements));
  }
  // Added in `order`, as a ring would from any of its ranks on.
  std::vector<float> sum(const std::vector<std::size_t>& order) {
    for (std::size_t rank = 0; rank < replicas.size(); ++rank) replicas[rank].gradient(gradients[rank]);
    std::vector<float> sums(kElements);
    for (const std::size_t rank : order) {
      for (std::size_t i = 0; i < kElements; ++i) sums[i] += gradients[rank][i];
    }
    return sums;
  }
  std::vector<StepRecord> apply(const std::vector<float>& sums) {
    std::vector<StepRecord> records;
    for (LossyReplica& replica : replicas) records.push_back(replica.apply(sums));
    return records;
  }
};

TEST(LossyReplica, SumsOfAllRanksAreExactInAnyOrderAndSolveTheProblem) {
  World world(3);
  const double before = world.replicas[0].distance();
  for (int step = 0; step < 30; ++step) {
    const std::vector<float> sums = world.sum({0, 1, 2});
    EXPECT_EQ(sums, world.sum({2, 0, 1}));
    for (const StepRecord& record : world.apply(sums)) {
      EXPECT_EQ(record.unreadable_elements + record.lacking_elements, 0u) << record.first_unreadable;
    }
  }
  EXPECT_LT(world.replicas[0].distance(), before / 1000);
}

TEST(LossyReplica, OfAnySubsetTheAbsentRanksAreNamedAndReplicasStayAlike) {
  World world(3);
  for (int step = 0; step < 20; ++step) {
    std::vector<float> sums = world.sum({0, 1, 2});
    for (std::size_t i = 100; i < 150; ++i) sums[i] -= world.gradients[1][i];
    for (std::size_t i = 140; i < 160; ++i) sums[i] -= world.gradients[2][i];
    sums[7] = 0;
    const std::vector<StepRecord> records = world.apply(sums);
    for (const StepRecord& record : records) {
      EXPECT_THAT(record.lacking, ElementsAre(1, 51, 21));
      EXPECT_EQ(record.lacking_elements, 61u);
      EXPECT_EQ(record.empty_elements, 1u);
      EXPECT_EQ(record.unreadable_elements, 0u);
      EXPECT_EQ(record.parameters_digest, records[0].parameters_digest);
      EXPECT_EQ(record.sums_digest, records[0].sums_digest);
    }
  }
}

TEST(LossyReplica, WhatIsNoSumOfContributionsIsUnreadable) {
  for (const float wrong : {0.5f, -1.0f, 8.0f, 2.5f, std::nanf(""), INFINITY, -INFINITY, 1e30f}) {
    World world(3);
    std::vector<float> sums = world.sum({0, 1, 2});
    sums[42] = world.gradients[0][42] * wrong;
    const StepRecord record = world.replicas[1].apply(sums);
    EXPECT_EQ(record.unreadable_elements, 1u) << wrong;
    EXPECT_THAT(record.first_unreadable, HasSubstr("element 42 is "));
  }
}

TEST(LossyReplica, AReplicaThatOnceDiffersIsToldByItsDigestAndSoonByItsSums) {
  World world(2);
  std::vector<float> sums = world.sum({0, 1});
  const StepRecord one = world.replicas[0].apply(sums);
  for (std::size_t i = 0; i < 100; ++i) sums[i] = world.gradients[1][i];
  const StepRecord other = world.replicas[1].apply(sums);
  EXPECT_NE(one.sums_digest, other.sums_digest);
  EXPECT_NE(one.parameters_digest, other.parameters_digest);
  std::uint64_t unreadable = 0;
  for (int step = 0; step < 10; ++step) {
    for (const StepRecord& record : world.apply(world.sum({0, 1}))) unreadable += record.unreadable_elements;
  }
  EXPECT_GT(unreadable, 0u);
}

TEST(LossyReplica, RanksOutOfRangeAreRefused) {
  EXPECT_THROW(LossyReplica(4, -1, 2), std::invalid_argument);
  EXPECT_THROW(LossyReplica(4, 2, 2), std::invalid_argument);
  EXPECT_THROW(LossyReplica(4, 0, kMostRanks + 1), std::invalid_argument);
}

TEST(Train, RecordsEachStepAndTheRowSaysWhatIsWrong) {
  LossyReplica replica(kElements, 0, 1);
  const auto right = train(replica, 3, [](auto gradient, auto sums) {
    EXPECT_THAT(sums, Each(::testing::IsNan()));
    std::copy(gradient.begin(), gradient.end(), sums.begin());
  });
  ASSERT_EQ(right["steps"].size(), 3u);
  EXPECT_LT(right["distance"][1], right["distance"][0]);
  const auto row = training_row(right, 20000, 1);
  EXPECT_EQ(row["correct"], true);
  EXPECT_EQ(row["iterations"], 2);
  // An all-reduce that returns and wrote nothing.
  const auto wrong = training_row(train(replica, 2, [](auto, auto) {}), 20000, 1);
  EXPECT_EQ(wrong["correct"], false);
  EXPECT_EQ(wrong["wrong_elements"], 2 * kElements);
  EXPECT_THAT(wrong["first_wrong"].get<std::string>(), HasSubstr("element 0 is nan"));
}

TEST(PluginLedger, APluginThatIsNotLoadedIsAnErrorThatNamesIt) {
  try {
    plugin_ledger("/nonexistent/libplugin.so");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'/nonexistent/libplugin.so' is not loaded"));
  }
}

}  // namespace
}  // namespace clustar::nccl_check
