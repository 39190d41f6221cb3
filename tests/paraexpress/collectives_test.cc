// The engine's other collectives over real transports, and what may not be done between a push and its pull.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "paraexpress/engine/pushes.h"
#include "tests/paraexpress/engine_ranks.h"
#include "tests/unit/paraexpress/core/program_cluster.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

using program_test::Bytes;
using program_test::contribution;
using program_test::part_of;
using program_test::reduction_of;
using ::testing::Each;
using ::testing::HasSubstr;
using transport::conformance::TransportUnderTest;

class CollectivesOver : public testing::TestWithParam<TransportUnderTest> {};

void expect_done(const std::unique_ptr<Operation>& operation) {
  const auto seconds = operation->wait();
  EXPECT_TRUE(seconds) << seconds.error().message;
}

// Each plan with each datatype, all started at once: a push's pull follows other operations.
TEST_P(CollectivesOver, EveryPlanAndDatatypeIsExact) {
  constexpr std::size_t kBlock = 1009;
  for_each_plan({1U, 2U, 5U}, [&](std::uint32_t n, const EngineOptions& options, const Forest& forest) {
    const bool blocks_by_plan = goes_by(Collective::kReduceScatter, *options.plan, forest);
    struct Case {
      DataType type;
      Reduction reduction;
      std::vector<Bytes> scattered, pushed, told;  // by rank
    };
    std::vector<Case> cases;
    for (std::size_t type = 0; type < kDataTypes; ++type) {
      Case one{static_cast<DataType>(type), type % 3 == 0 ? Reduction::kMax : Reduction::kSum, {}, {}, {}};
      for (Member rank = 0; rank < n; ++rank) {
        one.scattered.push_back(contribution(one.type, n * kBlock, rank));
        one.pushed.push_back(contribution(one.type, kBlock, rank + n));
        one.told.push_back(contribution(one.type, kBlock, rank + 2 * n));
      }
      cases.push_back(std::move(one));
    }
    const std::vector<Case> before = cases;
    with_ranks(GetParam(), n, options, [&](Engine& engine, Member rank) {
      std::vector<std::unique_ptr<Operation>> started;
      for (Case& one : cases) {
        for (Bytes* memory : {&one.scattered[rank], &one.pushed[rank], &one.told[rank]}) {
          ASSERT_TRUE(engine.add_memory(memory->data(), memory->size()));
        }
        started.push_back(engine.push(one.pushed[rank].data(), kBlock, one.type, one.reduction));
        started.push_back(engine.reduce_scatter(one.scattered[rank].data(), kBlock, one.type, one.reduction));
        const auto root = static_cast<Member>(static_cast<std::size_t>(one.type) % n);
        started.push_back(engine.broadcast(one.told[rank].data(), one.told[rank].size(), root));
      }
      for (Case& one : cases) started.push_back(engine.pull(one.pushed[rank].data(), kBlock, one.type));
      for (const auto& operation : started) expect_done(operation);
    });
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case &one = cases[i], &was = before[i];
      const Bytes pulled = reduction_of(forest, kBlock, was.pushed, one.type, one.reduction);
      for (Member rank = 0; rank < n; ++rank) {
        ASSERT_EQ(one.pushed[rank], pulled) << name_of(one.type);
        ASSERT_EQ(one.told[rank], was.told[static_cast<std::size_t>(one.type) % n]) << name_of(one.type);
        // Otherwise by what the planner likes best.
        if (!blocks_by_plan) continue;
        const ElementRange mine{rank * kBlock, (rank + 1) * kBlock};
        const Bytes scattered = reduction_of(forest, n * kBlock, was.scattered, one.type, one.reduction);
        ASSERT_EQ(part_of(one.scattered[rank], mine, one.type), part_of(scattered, mine, one.type))
            << name_of(one.type);
      }
    }
  });
}

// Whole numbers, so that any order of addition is right; megabytes, so that there are many chunks.
TEST_P(CollectivesOver, ThePlannersChoiceIsExactToo) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::size_t kBlock = 300'007;
  with_ranks(GetParam(), kRanks, {}, [&](Engine& engine, Member rank) {
    std::vector<float> blocks(kRanks * kBlock, static_cast<float>(rank + 1)), told(kBlock, static_cast<float>(rank));
    ASSERT_TRUE(engine.add_memory(blocks.data(), blocks.size() * sizeof(float)));
    ASSERT_TRUE(engine.add_memory(told.data(), told.size() * sizeof(float)));
    expect_done(engine.reduce_scatter(blocks.data(), kBlock, DataType::kFloat32));
    const auto mine = blocks.begin() + static_cast<std::ptrdiff_t>(rank * kBlock);
    EXPECT_TRUE(std::all_of(mine, mine + kBlock, [](float sum) { return sum == 10.0F; }));
    expect_done(engine.all_gather(blocks.data(), kBlock * sizeof(float)));
    EXPECT_TRUE(std::ranges::all_of(blocks, [](float sum) { return sum == 10.0F; }));
    expect_done(engine.broadcast(told.data(), told.size() * sizeof(float), 3));
    EXPECT_TRUE(std::ranges::all_of(told, [](float value) { return value == 3.0F; }));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, CollectivesOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

// What the last operations of two ranks fail with.
std::vector<std::string> errors_of(const std::function<std::unique_ptr<Operation>(Engine&, float*, Member)>& body) {
  std::vector<std::string> said(2);
  EngineOptions options;
  options.plan = Plan::kDirect;
  options.stall = std::chrono::seconds(1);
  with_ranks(transport::conformance::tcp_under_test().front(), 2, options, [&](Engine& engine, Member rank) {
    std::vector<float> memory(1000);
    ASSERT_TRUE(engine.add_memory(memory.data(), memory.size() * sizeof(float)));
    const auto seconds = body(engine, memory.data(), rank)->wait();
    said[rank] = seconds ? "nothing" : seconds.error().message;
  });
  return said;
}

// Rank 1 does it; rank 0 waits for what only rank 1 has.
TEST(EngineCollectives, WhatMayNotBeDoneIsSaidToAllRanks) {
  EXPECT_THAT(errors_of([](Engine& engine, float* memory, Member rank) {
                return engine.broadcast(memory, 1000, rank == 1 ? 2 : 1);
              }),
              Each(HasSubstr("rank 1: a broadcast from rank 2; allowed: 0 to 1")));
  EXPECT_THAT(errors_of([](Engine& engine, float* memory, Member rank) {
                return rank == 1 ? engine.pull(memory, 1000, DataType::kFloat32)
                                 : engine.all_reduce(memory, 1000, DataType::kFloat32);
              }),
              Each(HasSubstr("rank 1: a pull of memory that was not pushed")));
  EXPECT_THAT(errors_of([](Engine& engine, float* memory, Member rank) {
                expect_done(engine.push(memory, 1000, DataType::kFloat32));
                return rank == 1 ? engine.all_reduce(memory + 999, 1, DataType::kFloat32)
                                 : engine.pull(memory, 1000, DataType::kFloat32);
              }),
              Each(HasSubstr("rank 1: memory that was pushed and not pulled")));
}

TEST(EngineCollectives, ABroadcastFromTwoRootsIsAnErrorOfTheNextOperationAtTheLatest) {
  EXPECT_THAT(errors_of([](Engine& engine, float* memory, Member rank) {
                (void)engine.broadcast(memory, 400, rank)->wait();
                return engine.all_reduce(memory, 100, DataType::kFloat32);
              }),
              Each(HasSubstr("the same operations")));
}

TEST(EngineCollectives, WhoAgreesOnSomethingElseHasNoResult) {
  EXPECT_THAT(errors_of([](Engine& engine, float* memory, Member rank) {
                engine.agree_on(40);
                expect_done(engine.all_reduce(memory, 1000, DataType::kFloat32));
                engine.agree_on(rank == 1 ? 2 : 1);
                return engine.all_reduce(memory, 1000, DataType::kFloat32);
              }),
              Each(HasSubstr("the same operations")));
}

// The second operation looks the same again, and the first has not ended.
TEST(EngineCollectives, TwoThatAreSwappedHaveNoResult) {
  EXPECT_THAT(errors_of([](Engine& engine, float* memory, Member rank) {
                std::vector<std::unique_ptr<Operation>> started;
                for (const bool first : {true, false}) {
                  engine.agree_on(first == (rank == 1) ? 2 : 1);
                  started.push_back(engine.all_reduce(memory + started.size() * 500, 500, DataType::kFloat32));
                }
                EXPECT_FALSE(started.front()->wait());
                return std::move(started.back());
              }),
              Each(HasSubstr("the same operations")));
}

TEST(Pushes, APullIsOfWhatWasPushed) {
  std::array<std::byte, 100> memory{};
  const std::byte* const at = memory.data();
  Pushes pushes;
  const auto first = pushes.admit(Collective::kPush, at, 40, DataType::kFloat32);
  ASSERT_TRUE(first && *first);
  ASSERT_TRUE(pushes.admit(Collective::kPush, at + 40, 60, DataType::kInt8)) << "two at once";
  EXPECT_TRUE(pushes.admit(Collective::kAllReduce, at + 100, 8, DataType::kInt8));
  for (const Collective other : {Collective::kPush, Collective::kAllReduce, Collective::kBroadcast}) {
    EXPECT_FALSE(pushes.admit(other, at + 39, 1, DataType::kInt8));
  }
  EXPECT_FALSE(pushes.admit(Collective::kPull, at, 40, DataType::kInt32));
  EXPECT_FALSE(pushes.admit(Collective::kPull, at, 36, DataType::kFloat32));
  EXPECT_FALSE(pushes.admit(Collective::kPull, at + 4, 36, DataType::kFloat32));
  const auto pull = pushes.admit(Collective::kPull, at, 40, DataType::kFloat32);
  ASSERT_TRUE(pull);
  EXPECT_EQ(*pull, *first) << "the pull goes by its push's plan";
  EXPECT_FALSE(pushes.admit(Collective::kPull, at, 40, DataType::kFloat32)) << "once";
  EXPECT_TRUE(pushes.admit(Collective::kAllReduce, at, 40, DataType::kFloat32));
}

}  // namespace
}  // namespace clustar::paraexpress
