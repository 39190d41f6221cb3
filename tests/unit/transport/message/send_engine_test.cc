#include "transport/message/send_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace clustar::transport {
namespace {

using std::chrono::microseconds;

struct StillClock final : Clock {
  TimePoint now() const override { return at; }
  TimePoint at = TimePoint(microseconds(1));
};

// Writes what it takes to a common record: "<name><cookie>@<offset>+<length>".
class RecordingWire final : public ChunkWire {
 public:
  RecordingWire(std::string name, std::vector<std::string>& record) : name_(std::move(name)), record_(record) {}

  std::uint64_t chunk_limit(std::uint64_t) const override { return limit; }
  bool start_chunk(const SendQueue::Chunk& chunk) override {
    if (room < chunk.length) return false;
    room -= chunk.length;
    ahead += chunk.length;
    sent += chunk.length;
    record_.push_back(name_ + std::to_string(chunk.cookie) + "@" + std::to_string(chunk.offset) + "+" +
                      std::to_string(chunk.length));
    return true;
  }
  std::uint64_t ahead_bytes() override { return ahead; }
  void end_of_pump() override { ++ends; }

  std::uint64_t limit = 1000;
  std::uint64_t room = ~std::uint64_t{0};
  std::uint64_t ahead = 0;
  std::uint64_t sent = 0;
  int ends = 0;

 private:
  const std::string name_;
  std::vector<std::string>& record_;
};

// The lowest class number first.
class ByClass final : public SendPolicy {
 public:
  Turn turn(const Flow& flow, TimePoint) override { return {.rank = flow.key.traffic_class}; }
};

struct SendEngineTest : ::testing::Test {
  SendEngine& fifo(std::uint64_t pump_bytes = ~std::uint64_t{0}) {
    engine = std::make_unique<SendEngine>(clock, std::make_unique<FifoPolicy>(),
                                          SendEngine::Limits{.pump_bytes = pump_bytes});
    return *engine;
  }
  std::vector<std::string> take() { return std::exchange(record, {}); }

  StillClock clock;
  std::vector<std::string> record;
  RecordingWire a{"a", record}, b{"b", record};
  std::unique_ptr<SendEngine> engine;
};

using Names = std::vector<std::string>;

TEST_F(SendEngineTest, CutsMessagesAsEachWireAsks) {
  SendEngine& nic = fifo();
  const auto connection_a = nic.attach(a, {});
  const auto connection_b = nic.attach(b, {});
  b.limit = 60;
  nic.push(connection_a, 1, {}, 100);
  nic.push(connection_b, 2, {}, 100);
  nic.pump();
  EXPECT_EQ(take(), (Names{"a1@0+100", "b2@0+60", "b2@60+40"}));
  EXPECT_GE(a.ends, 1) << "what the wires gathered leaves";
  EXPECT_GE(b.ends, 1);
}

TEST_F(SendEngineTest, AWireWithoutRoomHoldsUpNobodyElse) {
  SendEngine& nic = fifo();
  const auto connection_a = nic.attach(a, {});
  const auto connection_b = nic.attach(b, {});
  a.room = 0;
  nic.push(connection_a, 1, {}, 100);
  nic.push(connection_b, 2, {}, 100);
  nic.pump();
  EXPECT_EQ(take(), Names{"b2@0+100"});
  a.room = 100;
  nic.pump();
  EXPECT_EQ(take(), Names{}) << "blocked until somebody says that it has room";
  nic.unblock(connection_a);
  nic.pump();
  EXPECT_EQ(take(), Names{"a1@0+100"});
}

TEST_F(SendEngineTest, OnePumpIsBounded) {
  SendEngine& nic = fifo(150);
  const auto connection = nic.attach(a, {});
  a.limit = 100;
  nic.push(connection, 1, {}, 1000);
  nic.pump();
  EXPECT_EQ(take(), (Names{"a1@0+100", "a1@100+100"}));
  nic.pump();
  EXPECT_EQ(take(), (Names{"a1@200+100", "a1@300+100"}));
}

TEST_F(SendEngineTest, WhatIsAheadIsBoundedOverAllWiresWhereThePolicyOrders) {
  SendEngine nic(clock, std::make_unique<ByClass>(),
                 {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});  // 20 kB
  EXPECT_TRUE(nic.strict());
  const auto connection_a = nic.attach(a, {});
  const auto connection_b = nic.attach(b, {});
  a.limit = b.limit = 4000;
  FlowTag bulk;
  bulk.traffic_class = 3;
  nic.push(connection_a, 1, bulk, 1'000'000);
  nic.push(connection_b, 2, bulk, 1'000'000);
  nic.pump();
  const std::uint64_t bound = send_ahead_bytes(microseconds(20), 1'000'000'000, true);
  EXPECT_GE(a.ahead + b.ahead, bound);
  EXPECT_LT(a.ahead + b.ahead, bound + 4000) << "a chunk more at most";
  FlowTag top;
  top.traffic_class = 0;
  nic.push(connection_b, 3, top, 4000);
  take();
  nic.pump();
  EXPECT_EQ(take(), Names{}) << "the line has enough for now";
  a.ahead = b.ahead = 0;
  nic.pump();
  const Names then = take();
  ASSERT_FALSE(then.empty());
  EXPECT_EQ(then.front(), "b3@0+4000");
}

TEST(OrderedChunk, IsShorterOnSlowLines) {
  EXPECT_EQ(ordered_chunk(0), kOrderedChunk) << "not known";
  EXPECT_EQ(ordered_chunk(1'250'000'000), kOrderedChunk);
  EXPECT_EQ(ordered_chunk(125'000'000), kOrderedChunk);
  EXPECT_EQ(ordered_chunk(62'500'000), 10u * 1024);
  EXPECT_EQ(ordered_chunk(25'000'000), 4u * 1024);
  EXPECT_EQ(ordered_chunk(1'000'000), 4u * 1024);
}

class Alone final : public SendPolicy {
 public:
  explicit Alone(const bool& alone) : alone_(alone) {}
  Turn turn(const Flow&, TimePoint) override { return {}; }
  RunAhead run_ahead(TimePoint) const override { return alone_ ? RunAhead::kFree : RunAhead::kNo; }

 private:
  const bool& alone_;
};

class Fills final : public SendPolicy {
 public:
  Turn turn(const Flow&, TimePoint) override { return {}; }
  RunAhead run_ahead(TimePoint) const override { return RunAhead::kFill; }
};

TEST_F(SendEngineTest, BesideOthersTheLineIsKeptBusyByShortChunks) {
  constexpr std::uint64_t kSpeed = 100'000'000;
  const std::uint64_t least = send_ahead_bytes(microseconds(20), kSpeed, true);
  SendEngine nic(clock, std::make_unique<Fills>(), {.ahead = microseconds(20), .bytes_per_second = kSpeed});
  const auto connection = nic.attach(a, {});
  nic.push(connection, 1, {}, 100'000'000);
  a.limit = 1000;
  nic.pump();
  EXPECT_LT(a.ahead, least + 1000) << "as without";
  for (int i = 0; i < 20; ++i) {
    a.ahead = 0;  // all has left: the line stood still
    nic.pump();
    EXPECT_EQ(nic.chunk(), kOrderedChunk);
  }
  const std::uint64_t most = send_ahead_bytes(SendEngine::kMostToFill, kSpeed, true);
  EXPECT_GE(a.ahead, most);
  EXPECT_LT(a.ahead, most + 1000);
  for (int i = 0; i < 30; ++i) {  // the sender comes often
    clock.at += microseconds(1000);
    a.ahead -= std::min<std::uint64_t>(a.ahead, 1000);
    nic.pump();
  }
  a.ahead = 0;
  nic.pump();
  EXPECT_LE(a.ahead, 2 * least + 2000) << "so much is not needed";
}

TEST_F(SendEngineTest, AFlowThatIsAloneMayHaveMoreAhead) {
  bool alone = true;
  SendEngine nic(clock, std::make_unique<Alone>(alone), {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});
  const auto connection = nic.attach(a, {});
  a.limit = 4000;
  nic.push(connection, 1, {}, 10'000'000);
  nic.pump();
  const std::uint64_t more = send_ahead_bytes(SendEngine::kAheadAlone, 1'000'000'000, true);
  EXPECT_GE(a.ahead, more);
  EXPECT_LT(a.ahead, more + send_ahead_bytes(microseconds(20), 1'000'000'000, true));
  EXPECT_EQ(nic.chunk(), more);
  alone = false;
  const std::uint64_t before = a.ahead;
  nic.pump();
  EXPECT_EQ(a.ahead, before) << "that has to leave first";
  EXPECT_EQ(nic.chunk(), kOrderedChunk);
  a.ahead = 0;
  nic.pump();
  EXPECT_LT(a.ahead, send_ahead_bytes(microseconds(20), 1'000'000'000, true) + 4000);
}

TEST_F(SendEngineTest, AFlowThatIsAloneMayHaveWhatTheLineTakesWhateverItsSpeedIsSaidToBe) {
  bool alone = true;
  SendEngine nic(clock, std::make_unique<Alone>(alone), {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});
  const auto connection = nic.attach(a, {});
  nic.push(connection, 1, {}, 100'000'000);
  for (int i = 0; i < 8; ++i) {
    a.limit = nic.chunk();
    a.ahead = 0;  // all has left already
    nic.pump();
  }
  EXPECT_GE(a.ahead, DrainLimit::kMost);
  EXPECT_EQ(nic.chunk(), DrainLimit::kMost);
  alone = false;
  a.ahead = 0;
  a.limit = 4000;
  nic.pump();
  EXPECT_EQ(nic.chunk(), kOrderedChunk);
  EXPECT_LT(a.ahead, send_ahead_bytes(microseconds(20), 1'000'000'000, true) + 4000);
}

TEST_F(SendEngineTest, APeerThatTakesNothingForAWhileIsNoReasonToHaveMoreAhead) {
  const bool alone = true;
  SendEngine nic(clock, std::make_unique<Alone>(alone), {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});
  const auto connection = nic.attach(a, {});
  a.limit = 4000;
  nic.push(connection, 1, {}, 100'000'000);
  nic.pump();
  const std::uint64_t least = nic.chunk();
  const std::uint64_t given = a.ahead;
  for (int stalls = 0; stalls < 8; ++stalls) {
    for (int i = 0; i < 7; ++i) {  // longer than AheadMeter::kPatience, shorter than DrainLimit::kWindow
      clock.at += microseconds(1000);
      nic.unblock(connection);
      nic.pump();
      EXPECT_EQ(a.ahead, given) << "more would not leave either";
    }
    a.ahead = 0;  // it takes all that it was sent
    clock.at += microseconds(100);
    nic.unblock(connection);
    nic.pump();
    ASSERT_EQ(nic.chunk(), least) << "after " << stalls + 1 << " stalls";
  }
}

TEST_F(SendEngineTest, WhatAStuckConnectionHasWasTooMuch) {
  const bool alone = true;
  SendEngine nic(clock, std::make_unique<Alone>(alone), {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});
  const auto connection = nic.attach(a, {});
  nic.push(connection, 1, {}, 100'000'000);
  nic.pump();
  const std::uint64_t least = nic.chunk();
  a.limit = 4000;
  for (int i = 0; i < 4; ++i) {
    a.ahead = 0;
    nic.pump();
  }
  ASSERT_GT(nic.chunk(), 8 * least);
  for (int i = 0; i < 30; ++i) {
    clock.at += microseconds(1000);
    nic.pump();
  }
  EXPECT_EQ(nic.chunk(), least);
}

TEST_F(SendEngineTest, WhatWasHeldBackInCompanyIsNoReasonToHaveMoreAheadAlone) {
  bool alone = true;
  SendEngine nic(clock, std::make_unique<Alone>(alone), {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});
  const auto connection = nic.attach(a, {});
  a.limit = 4000;
  nic.push(connection, 1, {}, 100'000'000);
  nic.pump();
  const std::uint64_t least = nic.chunk();
  for (int turns = 0; turns < 8; ++turns) {
    alone = false;
    clock.at += microseconds(100);
    a.ahead = 0;
    nic.pump();
    ASSERT_LT(a.ahead, least) << "the shorter bound holds it back";
    alone = true;
    clock.at += microseconds(100);
    a.ahead = 0;
    nic.pump();
    ASSERT_EQ(nic.chunk(), least) << "after " << turns + 1 << " turns";
  }
}

TEST_F(SendEngineTest, AStuckConnectionHoldsUpTheOthersForOnePatienceInTotal) {
  SendEngine nic(clock, std::make_unique<ByClass>(),
                 {.ahead = microseconds(20), .bytes_per_second = 1'000'000'000});  // 20 kB, and 16 KiB
  const auto connection_a = nic.attach(a, {});
  const auto connection_b = nic.attach(b, {});
  a.limit = b.limit = 4000;
  nic.push(connection_a, 1, {}, 1'000'000);  // its peer is stopped, and its kernel takes all of it
  nic.push(connection_b, 2, {}, 1'000'000);
  const auto step = [&](std::uint64_t after_us) {
    clock.at += microseconds(after_us);
    b.ahead = 0;  // what was handed on has left
    nic.unblock(connection_a);
    nic.unblock(connection_b);
    nic.pump();
  };
  step(0);
  EXPECT_EQ(b.sent, 0u);
  const std::uint64_t given = a.ahead;
  step(5001);
  EXPECT_EQ(a.ahead, given) << "more would not leave either";
  for (int i = 0; i < 10; ++i) step(1000);
  const std::uint64_t bound = send_ahead_bytes(microseconds(20), 1'000'000'000, true);
  EXPECT_GE(b.sent, 11 * bound);
  EXPECT_EQ(a.ahead, given);
  a.ahead = b.ahead = 0;  // it goes on, by itself
  clock.at += microseconds(1);
  nic.pump();
  EXPECT_GE(a.ahead, 4000u) << "its message goes first, and nobody had to unblock it";
}

// Hears when something was queued.
class Noting final : public SendPolicy {
 public:
  explicit Noting(std::vector<TimePoint>& heard) : heard_(heard) {}
  Turn turn(const Flow&, TimePoint) override { return {}; }
  void on_queued(const Flow&, std::uint64_t, TimePoint now) override { heard_.push_back(now); }

 private:
  std::vector<TimePoint>& heard_;
};

TEST_F(SendEngineTest, TheClockIsReadOnlyForThoseWhoWantTheTime) {
  struct CountedClock final : Clock {
    TimePoint now() const override { return ++reads, TimePoint(microseconds(7)); }
    mutable int reads = 0;
  } counted;
  SendEngine by_arrival(counted, std::make_unique<FifoPolicy>(), {});
  by_arrival.push(by_arrival.attach(a, {}), 1, {}, 100);
  by_arrival.pump();
  EXPECT_EQ(take(), Names{"a1@0+100"});
  EXPECT_EQ(counted.reads, 0);
  std::vector<TimePoint> heard;
  SendEngine noting(counted, std::make_unique<Noting>(heard), {});
  noting.push(noting.attach(a, {}), 1, {}, 100);
  EXPECT_EQ(heard, std::vector<TimePoint>{TimePoint(microseconds(7))});
}

TEST_F(SendEngineTest, AClosedConnectionSendsNoMoreAndItsPlaceIsUsedAgain) {
  SendEngine& nic = fifo();
  const auto connection = nic.attach(a, {});
  nic.push(connection, 1, {}, 100);
  nic.detach(connection);
  nic.pump();
  EXPECT_EQ(take(), Names{});
  const auto again = nic.attach(b, {});
  EXPECT_EQ(again, connection);
  nic.push(again, 2, {}, 10);
  nic.pump();
  EXPECT_EQ(take(), Names{"b2@0+10"});
}

}  // namespace
}  // namespace clustar::transport
