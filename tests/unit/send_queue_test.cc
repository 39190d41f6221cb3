#include "transport/api/send_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace clustar::transport {
namespace {

SendQueue fifo() { return SendQueue(std::make_unique<FifoOrder>()); }

// Smallest coflow first.
class SmallestFirst final : public SendOrder {
 public:
  std::uint64_t rank(const FlowTag& flow, std::uint64_t) const override { return flow.bytes; }
};

// The order of an outside decision, changed by hand.
class ByTable final : public SendOrder {
 public:
  explicit ByTable(const std::map<std::uint64_t, std::uint64_t>& ranks) : ranks_(ranks) {}
  std::uint64_t rank(const FlowTag& flow, std::uint64_t) const override { return ranks_.at(flow.coflow); }

 private:
  const std::map<std::uint64_t, std::uint64_t>& ranks_;
};

// Its own class first, then least remaining bytes; `reversed` turns the classes round.
class ByClassThenLeft final : public SendOrder {
 public:
  ByClassThenLeft(bool by_left, const bool& reversed) : by_left_(by_left), reversed_(reversed) {}
  std::uint64_t rank(const FlowTag& flow, std::uint64_t remaining_bytes) const override {
    const std::uint64_t first = reversed_ ? 3 - flow.bytes : flow.bytes;
    return first * 10000 + (by_left_ ? remaining_bytes : 0);
  }

 private:
  bool by_left_;
  const bool& reversed_;
};

std::vector<std::uint64_t> drain(SendQueue& queue, std::uint64_t chunk) {
  std::vector<std::uint64_t> cookies;
  while (const auto next = queue.next(chunk)) {
    cookies.push_back(next->cookie);
    queue.commit(*next);
  }
  return cookies;
}

TEST(SendQueue, FifoSendsWholeMessagesInArrivalOrderAcrossLanes) {
  SendQueue queue = fifo();
  const auto a = queue.add_lane();
  const auto b = queue.add_lane();
  queue.push(a, 1, {}, 250);
  queue.push(b, 2, {}, 100);
  queue.push(a, 3, {}, 0);
  EXPECT_EQ(queue.queued_bytes(), 350u);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{1, 1, 1, 2, 3}));
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.queued_bytes(), 0u);
}

TEST(SendQueue, ChunksCoverAMessageOnceAndMarkTheLast) {
  SendQueue queue = fifo();
  const auto lane = queue.add_lane();
  queue.push(lane, 7, {}, 1000);
  std::uint64_t at = 0;
  bool last = false;
  while (const auto chunk = queue.next(300)) {
    EXPECT_FALSE(last);
    EXPECT_EQ(chunk->offset, at);
    at += chunk->length;
    last = chunk->last;
    queue.commit(*chunk);
  }
  EXPECT_EQ(at, 1000u);
  EXPECT_TRUE(last);
}

TEST(SendQueue, NothingChangesWithoutCommit) {
  SendQueue queue = fifo();
  const auto lane = queue.add_lane();
  queue.push(lane, 1, {}, 10);
  const auto first = queue.next(4);
  const auto again = queue.next(4);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->offset, again->offset);
  EXPECT_EQ(queue.queued_bytes(), 10u);
}

TEST(SendQueue, ABlockedLaneIsPassedOverAndKeepsItsPlace) {
  SendQueue queue = fifo();
  const auto a = queue.add_lane();
  const auto b = queue.add_lane();
  queue.push(a, 1, {}, 10);
  queue.push(b, 2, {}, 10);
  queue.push(a, 3, {}, 10);
  queue.block(a);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2}));
  queue.unblock(a);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{1, 3}));
}

TEST(SendQueue, RemovingALaneDropsItsMessagesOnly) {
  SendQueue queue = fifo();
  const auto a = queue.add_lane();
  const auto b = queue.add_lane();
  queue.push(a, 1, {}, 10);
  queue.push(b, 2, {}, 20);
  queue.push(a, 3, {}, 30);
  queue.remove_lane(a);
  EXPECT_EQ(queue.queued_bytes(), 20u);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(queue.add_lane(), a) << "a freed lane is given out again";
}

TEST(SendQueue, ThePluggedOrderDecidesAndTiesGoByArrival) {
  SendQueue queue(std::make_unique<SmallestFirst>());
  const auto lane = queue.add_lane();
  queue.push(lane, 1, {0, 1, 500}, 10);
  queue.push(lane, 2, {0, 2, 100}, 10);
  queue.push(lane, 3, {0, 3, 500}, 10);
  queue.push(lane, 4, {0, 4, 300}, 10);
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2, 4, 1, 3}));
}

TEST(SendQueue, AMouseOvertakesAnElephantBetweenTwoChunks) {
  SendQueue queue(std::make_unique<SmallestFirst>());
  const auto lane = queue.add_lane();
  queue.push(lane, 1, {0, 1, 1000}, 1000);
  const auto first = queue.next(100);
  queue.commit(*first);
  queue.push(lane, 2, {0, 2, 50}, 50);
  EXPECT_EQ(queue.next(100)->cookie, 2u);
}

TEST(SendQueue, ReorderAppliesAChangedDecisionToWhatWaits) {
  std::map<std::uint64_t, std::uint64_t> ranks{{1, 0}, {2, 1}};
  SendQueue queue(std::make_unique<ByTable>(ranks));
  const auto lane = queue.add_lane();
  queue.push(lane, 1, {0, 1, 0}, 10);
  queue.push(lane, 2, {0, 2, 0}, 10);
  ranks = {{1, 5}, {2, 1}};
  queue.reorder();
  EXPECT_EQ(drain(queue, 100), (std::vector<std::uint64_t>{2, 1}));
}

// Random pushes, blocks, lane ends, drains and changes of the order against a plain model: every byte leaves once, in
// rank order.
TEST(SendQueue, AgreesWithAModelUnderRandomUse) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    bool reversed = false;
    const ByClassThenLeft order(seed % 2 == 0, reversed);
    SendQueue queue(std::make_unique<ByClassThenLeft>(order));
    struct Waiting {
      SendQueue::LaneId lane;
      std::uint64_t rank, arrival, left;
    };
    std::map<std::uint64_t, Waiting> model;  // by cookie
    const auto place = [&](const Waiting& message) {
      return std::pair(order.rank({0, 0, message.rank}, message.left), message.arrival);
    };
    std::set<SendQueue::LaneId> lanes;
    for (unsigned i = 0; i <= seed % 20; ++i) lanes.insert(queue.add_lane());
    std::set<SendQueue::LaneId> blocked;
    std::uint64_t cookie = 0;
    for (int step = 0; step < 300; ++step) {
      const auto lane = *std::next(lanes.begin(), static_cast<std::ptrdiff_t>(random() % lanes.size()));
      switch (random() % 9) {
        case 0:
        case 1:
        case 2:
        case 8: {
          if (random() % 20 == 0) {
            reversed = !reversed;
            queue.reorder();
          }
          const std::uint64_t bytes = random() % 5 == 0 ? 0 : random() % 1000;
          const std::uint64_t rank = random() % 4;
          queue.push(lane, ++cookie, {0, 0, rank}, bytes);
          model[cookie] = {lane, rank, cookie, bytes};
          break;
        }
        case 3:
          queue.block(lane);
          blocked.insert(lane);
          break;
        case 4:
          queue.unblock(lane);
          blocked.erase(lane);
          break;
        case 5:
          if (random() % 10 == 0) {
            queue.remove_lane(lane);
            std::erase_if(model, [&](const auto& entry) { return entry.second.lane == lane; });
            blocked.erase(lane);
            ASSERT_EQ(queue.add_lane(), lane);
          }
          break;
        default: {
          const auto chunk = queue.next(1 + random() % 400);
          auto best = model.end();
          for (auto it = model.begin(); it != model.end(); ++it) {
            if (blocked.contains(it->second.lane)) continue;
            if (best == model.end() || place(it->second) < place(best->second)) best = it;
          }
          ASSERT_EQ(chunk.has_value(), best != model.end()) << "seed " << seed;
          if (!chunk) break;
          ASSERT_EQ(chunk->cookie, best->first) << "seed " << seed;
          best->second.left -= chunk->length;
          ASSERT_EQ(chunk->last, best->second.left == 0);
          if (chunk->last) model.erase(best);
          queue.commit(*chunk);
        }
      }
      std::uint64_t left = 0;
      for (const auto& entry : model) left += entry.second.left;
      ASSERT_EQ(queue.queued_bytes(), left) << "seed " << seed;
      ASSERT_EQ(queue.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace clustar::transport
