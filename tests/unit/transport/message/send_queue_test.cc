#include "transport/message/send_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace clustar::transport {
namespace {

using std::chrono::microseconds;

constexpr TimePoint kStart = TimePoint(microseconds(1));

FlowTag of_coflow(std::uint64_t coflow, std::uint64_t bytes = 0) {
  FlowTag tag;
  tag.coflow = coflow;
  tag.bytes = bytes;
  return tag;
}

SendQueue fifo() { return SendQueue(std::make_unique<FifoPolicy>()); }

// Smallest coflow first.
class SmallestFirst final : public SendPolicy {
 public:
  Turn turn(const Flow& flow, TimePoint) override { return {.rank = flow.coflow_bytes}; }
};

// What an outside decision says, changed by hand.
struct Decisions {
  std::map<std::uint64_t, SendPolicy::Turn> turns;  // by coflow
  std::uint64_t version = 0;
};
class AsDecided final : public SendPolicy {
 public:
  explicit AsDecided(const Decisions& decisions) : decisions_(decisions) {}
  Turn turn(const Flow& flow, TimePoint) override { return decisions_.turns.at(flow.key.coflow); }
  std::uint64_t version() const override { return decisions_.version; }

 private:
  const Decisions& decisions_;
};

std::vector<std::uint64_t> drain(SendQueue& queue, std::uint64_t chunk, TimePoint now = kStart) {
  std::vector<std::uint64_t> cookies;
  while (const auto next = queue.next(chunk, now)) {
    cookies.push_back(next->cookie);
    queue.commit(*next, now);
  }
  return cookies;
}

TEST(SendQueue, FifoSendsWholeMessagesInArrivalOrderAcrossLanes) {
  SendQueue queue = fifo();
  const auto a = queue.add_connection();
  const auto b = queue.add_connection();
  queue.push(a, 1, {}, 250, kStart);
  queue.push(b, 2, of_coflow(5), 100, kStart);
  queue.push(a, 3, {}, 0, kStart);
  EXPECT_EQ(queue.queued_bytes(), 350u);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{1, 1, 1, 2, 3}));
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.queued_bytes(), 0u);
  EXPECT_FALSE(queue.orders());
}

TEST(SendQueue, ChunksCoverAMessageOnceAndMarkTheLast) {
  SendQueue queue = fifo();
  const auto connection = queue.add_connection();
  queue.push(connection, 7, {}, 1000, kStart);
  std::uint64_t at = 0;
  bool last = false;
  while (auto chunk = queue.next(300, kStart)) {
    chunk->shorten(at < 500 ? 200 : 300);
    EXPECT_FALSE(last);
    EXPECT_EQ(chunk->offset, at);
    at += chunk->length;
    last = chunk->last;
    queue.commit(*chunk, kStart);
  }
  EXPECT_EQ(at, 1000u);
  EXPECT_TRUE(last);
}

TEST(SendQueue, NothingChangesWithoutCommit) {
  SendQueue queue = fifo();
  const auto connection = queue.add_connection();
  queue.push(connection, 1, {}, 10, kStart);
  const auto first = queue.next(4, kStart);
  const auto again = queue.next(4, kStart);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->offset, again->offset);
  EXPECT_EQ(queue.queued_bytes(), 10u);
}

TEST(SendQueue, ABlockedConnectionIsPassedOverAndKeepsItsPlace) {
  SendQueue queue = fifo();
  const auto a = queue.add_connection();
  const auto b = queue.add_connection();
  queue.push(a, 1, {}, 10, kStart);
  queue.push(b, 2, {}, 10, kStart);
  queue.push(a, 3, {}, 10, kStart);
  queue.block(a);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2}));
  queue.unblock(a);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{1, 3}));
}

TEST(SendQueue, RemovingAConnectionDropsItsMessagesOnly) {
  SendQueue queue = fifo();
  const auto a = queue.add_connection();
  const auto b = queue.add_connection();
  queue.push(a, 1, {}, 10, kStart);
  queue.push(b, 2, {}, 20, kStart);
  queue.push(a, 3, {}, 30, kStart);
  queue.remove_connection(a, kStart);
  EXPECT_EQ(queue.queued_bytes(), 20u);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(queue.add_connection(), a) << "a freed connection is given out again";
}

TEST(SendQueue, ThePolicyDecidesAndTiesGoByArrival) {
  SendQueue queue(std::make_unique<SmallestFirst>());
  const auto connection = queue.add_connection();
  queue.push(connection, 1, of_coflow(1, 500), 10, kStart);
  queue.push(connection, 2, of_coflow(2, 100), 10, kStart);
  queue.push(connection, 3, of_coflow(3, 500), 10, kStart);
  queue.push(connection, 4, of_coflow(4, 300), 10, kStart);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2, 4, 1, 3}));
  EXPECT_TRUE(queue.orders());
}

TEST(SendQueue, AMouseOvertakesAnElephantBetweenTwoChunks) {
  SendQueue queue(std::make_unique<SmallestFirst>());
  const auto a = queue.add_connection();
  const auto b = queue.add_connection();
  queue.push(a, 1, of_coflow(1, 1000), 1000, kStart);
  queue.commit(*queue.next(100, kStart), kStart);
  for (const auto connection : {a, b}) {
    queue.push(connection, 2, of_coflow(2, 50), 50, kStart);
    EXPECT_EQ(queue.next(100, kStart)->cookie, 2u);
    queue.commit(*queue.next(100, kStart), kStart);
  }
}

TEST(SendQueue, ClassesGoStrictlyTheLargerFirst) {
  SendQueue queue(std::make_unique<ClassPolicy>());
  const auto connection = queue.add_connection();
  for (const std::uint8_t traffic_class : {0, 96, 160, 96}) {
    FlowTag tag;
    tag.traffic_class = traffic_class;
    queue.push(connection, traffic_class, tag, 10, kStart);
  }
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{160, 96, 96, 0}));
}

TEST(SendQueue, AChunkHasTheLevelOfItsTurn) {
  Decisions decisions;
  decisions.turns[1] = {.rank = 1, .level = 9};
  decisions.turns[2] = {.rank = 2, .level = 15};
  SendQueue queue(std::make_unique<AsDecided>(decisions));
  const auto connection = queue.add_connection();
  queue.push(connection, 1, of_coflow(1), 10, kStart);
  queue.push(connection, 2, of_coflow(2), 10, kStart);
  EXPECT_EQ(queue.next(10, kStart)->level, 9);
  decisions.turns[1].level = 12;
  ++decisions.version;
  EXPECT_EQ(queue.next(10, kStart)->level, 12);
  queue.commit(*queue.next(10, kStart), kStart);
  EXPECT_EQ(queue.next(10, kStart)->level, 15);
}

TEST(SendQueue, AChangedDecisionAppliesToWhatWaits) {
  Decisions decisions{.turns = {{1, {.rank = 0}}, {2, {.rank = 1}}}};
  SendQueue queue(std::make_unique<AsDecided>(decisions));
  const auto connection = queue.add_connection();
  queue.push(connection, 1, of_coflow(1), 10, kStart);
  queue.push(connection, 2, of_coflow(2), 10, kStart);
  EXPECT_EQ(queue.next(10, kStart)->cookie, 1u);
  decisions.turns[1].rank = 5;
  decisions.version = 1;
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2, 1}));
}

TEST(SendQueue, WhatIsPacedWaitsForItsTimeAndHoldsUpNobody) {
  const TimePoint later = kStart + microseconds(50);
  Decisions decisions{.turns = {{1, {.rank = 0, .not_before = later}}, {2, {.rank = 1}}}};
  SendQueue queue(std::make_unique<AsDecided>(decisions));
  const auto connection = queue.add_connection();
  EXPECT_EQ(queue.next_release(), TimePoint::max());
  queue.push(connection, 1, of_coflow(1), 10, kStart);
  queue.push(connection, 2, of_coflow(2), 10, kStart);
  EXPECT_EQ(queue.next_release(), later);
  EXPECT_EQ(drain(queue, 100, later - microseconds(1)), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(drain(queue, 100, later), (std::vector<std::uint64_t>{1}));

  queue.push(connection, 3, of_coflow(1), 10, kStart);
  queue.remove_connection(connection, kStart);
  EXPECT_EQ(queue.size(), 0u) << "what is held back goes with its connection";
  EXPECT_FALSE(queue.next(10, later + microseconds(1)));
}

// Weighted fair queueing: a flow that always has something gets its part to within a chunk, and one that comes late no
// more.
TEST(SendQueue, FlowsOfOneRankShareByWeight) {
  Decisions decisions{.turns = {{1, {.share = 1}}, {2, {.share = 3}}, {3, {.share = 4}}, {4, {.rank = 1, .share = 9}}}};
  SendQueue queue(std::make_unique<AsDecided>(decisions));
  std::array<std::uint64_t, 5> sent{};
  std::array<SendQueue::ConnectionId, 5> connections{};
  for (std::uint64_t flow = 1; flow <= 4; ++flow)
    connections[flow] = queue.add_connection({.peer = static_cast<std::uint32_t>(flow)});
  for (const std::uint64_t flow : {1, 2, 4}) queue.push(connections[flow], flow, of_coflow(flow), 1'000'000, kStart);
  const auto send = [&](int chunks) {
    for (int i = 0; i < chunks; ++i) {
      const auto chunk = queue.next(100, kStart);
      sent[chunk->cookie] += chunk->length;
      queue.commit(*chunk, kStart);
    }
  };
  send(400);
  EXPECT_NEAR(static_cast<double>(sent[1]), 10'000, 200);
  EXPECT_NEAR(static_cast<double>(sent[2]), 30'000, 200);
  queue.push(connections[3], 3, of_coflow(3), 1'000'000, kStart);
  sent = {};
  send(800);
  EXPECT_NEAR(static_cast<double>(sent[1]), 10'000, 300);
  EXPECT_NEAR(static_cast<double>(sent[2]), 30'000, 300);
  EXPECT_NEAR(static_cast<double>(sent[3]), 40'000, 300);
  EXPECT_EQ(sent[4], 0u) << "of a worse rank";
}

// One message at a time, the next when the latest has left.
TEST(SendQueue, AFlowThatIsIdleBetweenItsMessagesGetsNoMoreThanItsShare) {
  Decisions decisions{.turns = {{1, {.share = 1}}, {2, {.share = 9}}}};
  SendQueue queue(std::make_unique<AsDecided>(decisions));
  const auto seldom = queue.add_connection({.peer = 1}), always = queue.add_connection({.peer = 2});
  queue.push(always, 2, of_coflow(2), 1'000'000, kStart);
  queue.push(seldom, 1, of_coflow(1), 100, kStart);
  std::array<std::uint64_t, 3> sent{};
  for (int i = 0; i < 1000; ++i) {
    const auto chunk = queue.next(100, kStart);
    sent[chunk->cookie] += chunk->length;
    queue.commit(*chunk, kStart);
    if (chunk->cookie == 1) queue.push(seldom, 1, of_coflow(1), 100, kStart);
  }
  EXPECT_NEAR(static_cast<double>(sent[1]), 10'000, 300);
  EXPECT_NEAR(static_cast<double>(sent[2]), 90'000, 300);
}

TEST(SendQueue, AFlowThatLosesItsShareGoesBeforeThoseThatHaveOne) {
  Decisions decisions{.turns = {{1, {.share = 1}}, {2, {.share = 9}}}};
  SendQueue queue(std::make_unique<AsDecided>(decisions));
  const auto slow = queue.add_connection({.peer = 1}), quick = queue.add_connection({.peer = 2});
  queue.push(slow, 1, of_coflow(1), 1000, kStart);
  queue.push(quick, 2, of_coflow(2), 10'000, kStart);
  for (int i = 0; i < 12; ++i) queue.commit(*queue.next(100, kStart), kStart);
  ASSERT_EQ(queue.next(100, kStart)->cookie, 2u) << "so the other's tie is the larger";
  decisions.turns[1].share = 0;
  decisions.version = 1;
  for (int i = 0; i < 3; ++i) {
    const auto chunk = queue.next(100, kStart);
    EXPECT_EQ(chunk->cookie, 1u);
    queue.commit(*chunk, kStart);
  }
}

// What a policy of the model says of a flow: a function of what it was told.
struct Rule {
  bool by_sent = false;
  bool reversed = false;
  std::uint64_t version = 0;

  SendPolicy::Turn of(std::uint64_t coflow, std::uint64_t sent) const {
    const std::uint64_t first = reversed ? 3 - coflow % 4 : coflow % 4;
    SendPolicy::Turn turn{.rank = first * 1000 + (by_sent ? std::min<std::uint64_t>(sent / 500, 10) : 0)};
    if (coflow % 3 == 0) turn.not_before = kStart + microseconds(sent / 700 * 10);
    return turn;
  }
};
class ByRule final : public SendPolicy {
 public:
  explicit ByRule(const Rule& rule) : rule_(rule) {}
  Turn turn(const Flow& flow, TimePoint) override { return rule_.of(flow.key.coflow, flow.sent); }
  std::uint64_t version() const override { return rule_.version; }

 private:
  const Rule& rule_;
};

struct Waiting {
  SendQueue::ConnectionId connection;
  std::uint64_t coflow, arrival, left;
};

// Random pushes, blocks, connection ends, drains, changes of the order and time against a plain model: every byte
// leaves once, in rank order, and none before its time.
class AgainstAModel {
 public:
  explicit AgainstAModel(unsigned seed) : random_(seed), queue_(std::make_unique<ByRule>(rule_)) {
    rule_.by_sent = seed % 2 == 0;
    for (unsigned i = 0; i <= seed % 20; ++i) connections_.push_back(queue_.add_connection());
  }

  void step() {
    const auto connection = connections_[random_() % connections_.size()];
    const auto what = random_() % 10;
    if (what < 4) {
      push(connection);
    } else if (what == 4) {
      queue_.block(connection);
      blocked_.insert(connection);
    } else if (what == 5) {
      queue_.unblock(connection);
      blocked_.erase(connection);
    } else if (what == 6 && random_() % 10 == 0) {
      remove(connection);
    } else {
      now_ += microseconds(random_() % 8);
      send();
    }
    std::uint64_t left = 0;
    for (const auto& entry : model_) left += entry.second.left;
    ASSERT_EQ(queue_.queued_bytes(), left);
    ASSERT_EQ(queue_.size(), model_.size());
  }

 private:
  void push(SendQueue::ConnectionId connection) {
    if (random_() % 20 == 0) {
      rule_.reversed = !rule_.reversed;
      ++rule_.version;
    }
    const std::uint64_t bytes = random_() % 5 == 0 ? 0 : random_() % 1000;
    const std::uint64_t coflow = 1 + random_() % 8;
    queue_.push(connection, ++cookie_, of_coflow(coflow), bytes, now_);
    model_[cookie_] = {connection, coflow, cookie_, bytes};
  }

  void remove(SendQueue::ConnectionId connection) {
    queue_.remove_connection(connection, now_);
    std::erase_if(model_, [&](const auto& entry) { return entry.second.connection == connection; });
    blocked_.erase(connection);
    ASSERT_EQ(queue_.add_connection(), connection);
  }

  void send() {
    const auto chunk = queue_.next(1 + random_() % 400, now_);
    auto best = model_.end();
    const auto place = [&](const Waiting& message) {
      return std::pair(rule_.of(message.coflow, sent_[message.coflow]).rank, message.arrival);
    };
    for (auto it = model_.begin(); it != model_.end(); ++it) {
      const Waiting& message = it->second;
      if (blocked_.contains(message.connection)) continue;
      if (rule_.of(message.coflow, sent_[message.coflow]).not_before > now_) continue;
      if (best == model_.end() || place(message) < place(best->second)) best = it;
    }
    ASSERT_EQ(chunk.has_value(), best != model_.end());
    if (!chunk) return;
    ASSERT_EQ(chunk->cookie, best->first);
    best->second.left -= chunk->length;
    sent_[best->second.coflow] += chunk->length;
    ASSERT_EQ(chunk->last, best->second.left == 0);
    if (chunk->last) model_.erase(best);
    queue_.commit(*chunk, now_);
  }

  std::mt19937_64 random_;
  Rule rule_;
  SendQueue queue_;
  std::vector<SendQueue::ConnectionId> connections_;
  std::set<SendQueue::ConnectionId> blocked_;
  std::map<std::uint64_t, Waiting> model_;       // by cookie
  std::map<std::uint64_t, std::uint64_t> sent_;  // by coflow
  std::uint64_t cookie_ = 0;
  TimePoint now_ = kStart;
};

TEST(SendQueue, AgreesWithAModelUnderRandomUse) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    AgainstAModel trial(seed);
    for (int step = 0; step < 300; ++step) {
      trial.step();
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace clustar::transport
