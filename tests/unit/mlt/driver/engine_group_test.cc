#include "mlt/driver/engine_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/transport/io/recording_io.h"
#include "transport/api/context.h"
#include "transport/api/settings.h"

namespace clustar::mlt::driver {
namespace {

using transport::ChannelOptions;

constexpr std::uint32_t kLossy = 10'000;

TEST(MltEngineGroup, AutoTakesWhatTheProcessHasProcessorsFor) {
  struct Case {
    std::size_t wanted, nics, processors, most;
  };
  constexpr Case kCases[] = {{0, 1, 0, 1},  {0, 1, 2, 1}, {0, 1, 7, 1},  {0, 1, 8, 4},  {0, 1, 64, 8},
                             {0, 2, 16, 4}, {0, 8, 8, 1}, {0, 0, 64, 8}, {1, 1, 64, 1}, {16, 8, 1, 16}};
  for (const Case& each : kCases) {
    EXPECT_EQ(most_engines(each.wanted, each.nics, each.processors), each.most)
        << each.wanted << " wanted, " << each.nics << " NICs, " << each.processors << " processors";
  }
  EXPECT_GE(usable_processors(), 1u);
}

class GroupTest : public ::testing::Test {
 protected:
  EngineGroup group(std::size_t most, EngineMode mode = EngineMode::kInline) { return {most, mode}; }
  std::shared_ptr<Engine> engine_for(EngineGroup& group, const ChannelOptions& channel) {
    auto engine = group.engine_for(channel, [this](transport::TrafficBook& traffic) -> Result<std::unique_ptr<Engine>> {
      if (refuses_) return fail(ErrorCode::kUnavailable, "this test has no more sockets");
      auto io = std::make_unique<transport::io::RecordingIo>();
      io->can.max_packet = 1500;
      devices_.push_back(io.get());
      return Engine::open(std::move(io), "test", Options{}, "eth7", context_, traffic);
    });
    if (!engine) error_ = engine.error().message;
    return engine ? *engine : nullptr;
  }

  const transport::io::ManualClock clock_{};
  std::string warnings_;
  Context context_{clock_, Log([this](LogLevel level, const std::string& text) {
                     if (level == LogLevel::kWarn) warnings_ += text;
                   }),
                   EngineMode::kInline};
  bool refuses_ = false;
  std::string error_;
  std::vector<transport::io::RecordingIo*> devices_;  // the engines own them
};

TEST_F(GroupTest, ACommunicatorKeepsToItsEngine) {
  EngineGroup group = this->group(3);
  EXPECT_TRUE(group.engines().empty()) << "until somebody connects";
  std::vector<std::shared_ptr<Engine>> held;
  for (const std::uint64_t communicator : {10, 11, 10, 12, 11, 0, 12, 0}) {
    held.push_back(engine_for(group, {.comm_id = communicator}));
    ASSERT_NE(held.back(), nullptr);
  }
  EXPECT_EQ(group.engines().size(), 3u);
  EXPECT_EQ(held[0], held[2]);
  EXPECT_EQ(held[1], held[4]);
  EXPECT_EQ(held[3], held[6]);
  EXPECT_EQ(held[5], held[7]);
  EXPECT_NE(held[0], held[1]);
  EXPECT_NE(held[1], held[3]);
  EXPECT_NE(held[0], held[3]);
}

TEST_F(GroupTest, WhatEndsLeavesItsEngineToTheNext) {
  EngineGroup group = this->group(2);
  auto first = engine_for(group, {.comm_id = 1});
  auto second = engine_for(group, {.comm_id = 2}), again = engine_for(group, {.comm_id = 2});
  EXPECT_EQ(engine_for(group, {.comm_id = 3}), first) << "and is gone again";
  Engine* const free = second.get();
  second.reset();
  EXPECT_EQ(engine_for(group, {.comm_id = 2}).get(), free) << "one of its connections lives";
  again.reset();
  EXPECT_EQ(engine_for(group, {.comm_id = 4}).get(), free);
  first.reset();
  for (std::uint64_t communicator = 5; communicator < 500; ++communicator)
    ASSERT_NE(engine_for(group, {.comm_id = communicator}), nullptr);
  EXPECT_EQ(group.engines().size(), 2u);
}

TEST_F(GroupTest, WithThreadsConnectionsAreSpreadButNotThoseThatMayLose) {
  EngineGroup group = this->group(3, EngineMode::kThread);
  std::vector<std::shared_ptr<Engine>> lossy, reliable;
  for (int i = 0; i < 3; ++i) lossy.push_back(engine_for(group, {.comm_id = 1, .max_tolerance_ppm = kLossy}));
  EXPECT_EQ(group.engines().size(), 1u);
  for (int i = 0; i < 2; ++i) reliable.push_back(engine_for(group, {.comm_id = 1}));
  EXPECT_EQ(group.engines().size(), 3u);
  EXPECT_EQ(lossy[0], lossy[1]);
  EXPECT_EQ(lossy[0], lossy[2]);
  EXPECT_NE(reliable[0], reliable[1]);
  EXPECT_NE(reliable[0], lossy[0]);
  EXPECT_NE(reliable[1], lossy[0]);
}

TEST_F(GroupTest, WithoutAFurtherEngineTheOthersGoOn) {
  EngineGroup group = this->group(4);
  refuses_ = true;
  EXPECT_EQ(engine_for(group, {.comm_id = 1}), nullptr);
  EXPECT_EQ(error_, "this test has no more sockets");
  refuses_ = false;
  const auto first = engine_for(group, {.comm_id = 1});
  ASSERT_NE(first, nullptr);
  refuses_ = true;
  EXPECT_EQ(engine_for(group, {.comm_id = 2}), first);
  EXPECT_EQ(warnings_, "mlt: no further engine on eth7: this test has no more sockets; going on with 1");
  refuses_ = false;
  EXPECT_EQ(engine_for(group, {.comm_id = 3}), first) << "nor is it tried again";
}

// Its connections end with it, so that it is the one with the fewest.
TEST_F(GroupTest, AnEngineWhoseDeviceIsLostGetsNobodyElse) {
  EngineGroup group = this->group(2);
  auto lost = engine_for(group, {.comm_id = 1});
  const auto other = engine_for(group, {.comm_id = 2});
  ASSERT_NE(lost, other);
  devices_[0]->broken = true;
  const std::atomic<bool> done{false};
  lost->poke(done);
  ASSERT_TRUE(lost->is_lost());
  lost.reset();
  EXPECT_EQ(engine_for(group, {.comm_id = 3}), other);
  EXPECT_EQ(engine_for(group, {.comm_id = 4}), other);
}

TEST_F(GroupTest, APolicySeesAllThatLeavesTheNic) {
  Config config;
  config.edit<SendOrderSettings>()->order = "class";
  context_.policies = transport::policies_of({config, clock_});
  EngineGroup group = this->group(4);
  const auto first = engine_for(group, {.comm_id = 1});
  EXPECT_EQ(engine_for(group, {.comm_id = 2}), first);
  EXPECT_EQ(group.engines().size(), 1u);
}

}  // namespace
}  // namespace clustar::mlt::driver
