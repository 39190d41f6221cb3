#include "tests/nccl_host/kernels/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/nccl_host/kernels/ll.h"
#include "tests/nccl_host/kernels/simple.h"

namespace nccl_host {
namespace {

constexpr size_t kSlot = 512;

// One sender's slots, with the receiver at the other end of the same memory.
struct Link {
  alignas(16) char buffer[kSlots * kSlot] = {};
  uint64_t head = 0;
  uint64_t tail = 0;
  Connection send{buffer, kSlot, &head, &tail, nullptr, 0};
  Connection receive{buffer, kSlot, &head, &tail, nullptr, 0};
};

class RingOf : public testing::TestWithParam<std::tuple<int, bool, size_t>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  size_t count() const { return std::get<2>(GetParam()); }

  // Runs what a rank does on a thread per rank.
  template <class Run>
  void OnAll(const Reduction& reduction, Run run) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([this, &reduction, run, rank] {
        std::vector<int> order(static_cast<size_t>(ranks()));
        std::iota(order.begin(), order.end(), rank);
        for (int& one : order) one %= ranks();
        const Ring ring{order, rank};
        Connection* const send = &links_[static_cast<size_t>(rank)]->send;
        Connection* const receive = &links_[static_cast<size_t>((rank + ranks() - 1) % ranks())]->receive;
        std::unique_ptr<Primitive> primitive;
        if (std::get<1>(GetParam()))
          primitive = std::make_unique<LowLatency>(reduction, receive, send, Poll(nullptr));
        else
          primitive = std::make_unique<Simple>(SimpleShape{2, 2, kSlot / reduction.size()}, reduction, receive, send,
                                               Poll(nullptr));
        run(ring, rank, *primitive);
      });
    }
  }

  void SetUp() override {
    for (int rank = 0; rank < ranks(); ++rank) links_.push_back(std::make_unique<Link>());
  }

  Part part(size_t total) const { return {total, 0, total, 60}; }
  static int Value(int rank, size_t index) { return rank * 1000 + static_cast<int>(index); }
  std::vector<int> Input(int rank, size_t count) const {
    std::vector<int> result(count);
    for (size_t i = 0; i < count; ++i) result[i] = Value(rank, i);
    return result;
  }
  int Sum(size_t index) const {
    int result = 0;
    for (int rank = 0; rank < ranks(); ++rank) result += Value(rank, index);
    return result;
  }
  static Buffers BuffersOf(const std::vector<int>& input, std::vector<int>& output) {
    return {reinterpret_cast<const char*>(input.data()), reinterpret_cast<char*>(output.data()), sizeof(int)};
  }

  std::vector<std::unique_ptr<Link>> links_;
  const Reduction sum_{Operator::kSum, Datatype::kInt32, 0};
};

TEST_P(RingOf, AllReduceTwiceOnTheSameConnections) {
  for (int time = 0; time < 2; ++time) {
    OnAll(sum_, [this](const Ring& ring, int rank, Primitive& primitive) {
      const std::vector<int> input = Input(rank, count());
      std::vector<int> output(count(), -1);
      AllReduce(ring, part(count()), BuffersOf(input, output), primitive);
      for (size_t i = 0; i < count(); ++i) ASSERT_EQ(output[i], Sum(i)) << "rank " << rank << " element " << i;
    });
  }
}

TEST_P(RingOf, ReduceScatterGivesEachItsShare) {
  OnAll(sum_, [this](const Ring& ring, int rank, Primitive& primitive) {
    const std::vector<int> input = Input(rank, count() * static_cast<size_t>(ranks()));
    std::vector<int> output(count(), -1);
    ReduceScatter(ring, part(count()), BuffersOf(input, output), primitive);
    for (size_t i = 0; i < count(); ++i) ASSERT_EQ(output[i], Sum(static_cast<size_t>(rank) * count() + i));
  });
}

TEST_P(RingOf, AllGatherGivesAllToAll) {
  OnAll(sum_, [this](const Ring& ring, int rank, Primitive& primitive) {
    const std::vector<int> input = Input(rank, count());
    std::vector<int> output(count() * static_cast<size_t>(ranks()), -1);
    AllGather(ring, part(count()), BuffersOf(input, output), primitive);
    for (size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], Value(static_cast<int>(i / count()), i % count()));
  });
}

TEST_P(RingOf, BroadcastAndReduceKnowTheirRoot) {
  const int root = ranks() - 1;
  OnAll(sum_, [this, root](const Ring& ring, int rank, Primitive& primitive) {
    const std::vector<int> input = Input(rank, count());
    std::vector<int> output(count(), -1);
    Broadcast(ring, part(count()), BuffersOf(input, output), root, primitive);
    for (size_t i = 0; i < count(); ++i) ASSERT_EQ(output[i], Value(root, i));
    Reduce(ring, part(count()), BuffersOf(input, output), root, primitive);
    for (size_t i = 0; rank == root && i < count(); ++i) ASSERT_EQ(output[i], Sum(i));
  });
}

INSTANTIATE_TEST_SUITE_P(Protocols, RingOf,
                         testing::Combine(testing::Values(2, 3, 5), testing::Bool(), testing::Values(0, 1, 59, 777)));

TEST(Poll, EndsByTheAbortFlag) {
  Link link;
  const uint32_t aborted = 1;
  const Reduction bytes(Operator::kSum, Datatype::kInt8, 0);
  char output = 0;
  Simple simple({1, 1, kSlot}, bytes, &link.receive, nullptr, Poll(&aborted));
  EXPECT_THROW(ReceiveAll(&output, 1, 1, simple), Aborted);
  LowLatency ll(bytes, &link.receive, nullptr, Poll(&aborted));
  EXPECT_THROW(ReceiveAll(&output, 1, 1, ll), Aborted);
}

TEST(LowLatency, FlagsEveryLineOfASlotWhenItCleans) {
  Link link;
  link.send.step = link.receive.step = link.head = 0x7ffffff8;
  const Reduction bytes(Operator::kSum, Datatype::kInt8, 0);
  LowLatency ll(bytes, nullptr, &link.send, Poll(nullptr));
  SendAll("x", 1, 1, ll);
  for (size_t line = 0; line < kSlot / 16; ++line) {
    uint32_t words[4];
    std::memcpy(words, link.buffer + line * 16, sizeof(words));
    EXPECT_EQ(words[1], 0x7ffffff9u) << line;
    EXPECT_EQ(words[3], 0x7ffffff9u) << line;
  }
}

}  // namespace
}  // namespace nccl_host
