// What the collective network does where ranks die, disagree or give up: an error on all, never a hang or a wrong sum.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/plugin/collnet/network.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using std::chrono::steady_clock;

constexpr std::size_t kCount = 100'000;

struct Buffer {
  Buffer(CollRank& me, std::size_t floats)
      : bytes(values(kFloat32, me.rank, 0, floats)), mr(me.reg(bytes.data(), bytes.size())) {}
  Bytes bytes;
  void* mr;
};

int all_reduce(CollRank& me, Buffer& buffer, std::size_t count, int type, int op, void** request) {
  return me.net.all_reduce(me.comm, buffer.bytes.data(), buffer.bytes.data(), count, type, op, buffer.mr, buffer.mr,
                           request);
}

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// The stall would be half an hour: what neighbours tell each other is what ends it.
TEST(CollNetFailures, WhoStartsSomethingElseIsNamedAtOnce) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(12);
  struct Other {
    std::size_t count;
    int type, op;
  };
  for (const Other other : {Other{kCount, kFloat32, kMax}, Other{kCount, kInt32, kSum},
                            Other{kCount / 2, kFloat32, kSum}, Other{0, kFloat32, kSum}}) {
    for (const int ranks : {2, 4}) {
      const auto begin = steady_clock::now();
      with_coll_ranks(*net, ranks, [&](CollRank& me) {
        Buffer buffer(me, kCount);
        void* request = nullptr;
        ASSERT_EQ(all_reduce(me, buffer, kCount, kFloat32, kSum, &request), kSuccess);
        ASSERT_EQ(me.wait(request), kSuccess);
        const bool odd = me.rank == 1;
        ASSERT_EQ(all_reduce(me, buffer, odd ? other.count : kCount, odd ? other.type : kFloat32, odd ? other.op : kSum,
                             &request),
                  kSuccess);
        const int ended = me.wait(request);
        // Who started nothing to wait for learns of it in the next operation.
        if (ended == kSuccess && odd && other.count == 0) {
          ASSERT_EQ(all_reduce(me, buffer, kCount, kFloat32, kSum, &request), kSuccess);
          EXPECT_THAT(me.wait(request), AnyOf(Eq(kInvalidUsage), Eq(kRemoteError)));
        } else {
          EXPECT_THAT(ended, AnyOf(Eq(kInvalidUsage), Eq(kRemoteError)));
        }
        me.dereg_all();
      });
      EXPECT_LT(seconds_since(begin), 20);
      EXPECT_THAT(collnet_log(), HasSubstr("all ranks must start the same operations in the same order"));
    }
  }
}

TEST(CollNetFailures, SwappedKindsAndWindowsAreFoundToo) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(11);
  for (const bool windows : {true, false}) {
    with_coll_ranks(*net, 3, [&](CollRank& me) {
      Buffer from(me, 3000), to(me, 3000);
      std::vector<void*> requests(2, nullptr);
      for (std::size_t i = 0; i < 2; ++i) {
        // Rank 2 takes the second first.
        const bool second = (i == 1) != (me.rank == 2);
        if (!windows && second) {
          ASSERT_EQ(me.net.all_reduce(me.comm, from.bytes.data(), to.bytes.data(), 1000, kFloat32, kSum, from.mr, to.mr,
                                      &requests[i]),
                    kSuccess);
        } else {
          ASSERT_EQ(me.net.reduce_scatter(me.comm, from.bytes.data(), to.bytes.data(), 4000, second ? 6000 : 0, 4000,
                                          kFloat32, kSum, from.mr, to.mr, &requests[i]),
                    kSuccess);
        }
      }
      std::vector<int> ended;
      for (void* request : requests) ended.push_back(me.wait(request));
      EXPECT_NE(ended.back(), kSuccess);
      EXPECT_NE(ended.back(), -1);
      me.dereg_all();
    });
    EXPECT_THAT(collnet_log(), HasSubstr("all ranks must start the same operations in the same order"));
  }
}

// NCCL takes back its buffers, and frees them, before it closes: with what was started still under way.
TEST(CollNetFailures, MemoryIsItsOwnersOnceItIsTakenBack) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(12);
  std::atomic<int> failures{0};
  const auto begin = steady_clock::now();
  with_coll_ranks(*net, 3, [&](CollRank& me) {
    {
      Buffer buffer(me, kCount);
      void* request = nullptr;
      if (me.rank == 0) {
        // It never starts what the others wait for.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        me.dereg_all();
        me.net.close_coll(me.comm);
        me.comm = nullptr;
        return;
      }
      ASSERT_EQ(all_reduce(me, buffer, kCount, kFloat32, kSum, &request), kSuccess);
      if (me.rank == 1) {
        // An abort: nothing is tested any more.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        me.dereg_all();
        std::memset(buffer.bytes.data(), 0x77, buffer.bytes.size());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (const std::byte one : buffer.bytes) ASSERT_EQ(one, std::byte{0x77});
        ++failures;
      } else {
        EXPECT_NE(me.wait(request), kSuccess);
        ++failures;
        me.dereg_all();
      }
    }
    me.leave();
  });
  EXPECT_EQ(failures, 2);
  EXPECT_LT(seconds_since(begin), 15);
}

// What no one can start is refused at the call, and the network is as it was.
// The sum is made beside it, and copied there at the end.
TEST(CollNetFailures, AScatteredSumGoesNowhereOnceItsMemoryIsTakenBack) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(11);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    constexpr std::size_t kFloats = 1000, kBytes = kFloats * sizeof(float);
    Buffer from(me, 2 * kFloats), to(me, kFloats);
    void* request = nullptr;
    if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_EQ(me.net.reduce_scatter(me.comm, from.bytes.data(), to.bytes.data(), kBytes, 0, 2 * kBytes, kFloat32, kSum,
                                    from.mr, to.mr, &request),
              kSuccess);
    if (me.rank == 0) {
      ASSERT_EQ(me.net.dereg_mr(me.comm, to.mr), kSuccess);
      std::erase(me.registered, to.mr);
      std::memset(to.bytes.data(), 0x77, to.bytes.size());
      EXPECT_NE(me.wait(request), kSuccess);
      for (const std::byte one : to.bytes) ASSERT_EQ(one, std::byte{0x77});
    } else {
      (void)me.wait(request);
    }
    me.dereg_all();
  });
}

TEST(CollNetFailures, WrongArgumentsAreRefusedAndChangeNothing) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    Buffer buffer(me, 100);
    std::byte* const data = buffer.bytes.data();
    void* request = nullptr;
    const auto reduce = [&](void* send, std::size_t count, int type, int op, void* mr) {
      return me.net.all_reduce(me.comm, send, data, count, type, op, mr, buffer.mr, &request);
    };
    EXPECT_EQ(reduce(data, 101, kFloat32, kSum, buffer.mr), kInvalidArgument);
    EXPECT_EQ(reduce(data - 4, 10, kFloat32, kSum, buffer.mr), kInvalidArgument);
    EXPECT_EQ(reduce(data, 10, kFloat32, kSum, nullptr), kInvalidArgument);
    EXPECT_EQ(reduce(data, 10, kFloat32, kProd, buffer.mr), kInvalidArgument);
    EXPECT_EQ(reduce(data, 10, kFloat32, kMin, buffer.mr), kInvalidArgument);
    EXPECT_EQ(reduce(data, 10, kFloat8e4m3, kSum, buffer.mr), kInvalidArgument);
    EXPECT_EQ(reduce(data, 10, -1, kSum, buffer.mr), kInvalidArgument);
    EXPECT_EQ(reduce(data, SIZE_MAX / 2, kFloat32, kSum, buffer.mr), kInvalidArgument);
    const auto scatter = [&](std::size_t per_rank, std::size_t offset, std::size_t bytes) {
      return me.net.reduce_scatter(me.comm, data, data, per_rank, offset, bytes, kFloat32, kSum, buffer.mr, buffer.mr,
                                   &request);
    };
    EXPECT_EQ(scatter(40, 0, 84), kInvalidArgument);
    EXPECT_EQ(scatter(40, 84, 0), kInvalidArgument);
    EXPECT_EQ(scatter(40, 2, 8), kInvalidArgument);
    EXPECT_EQ(scatter(SIZE_MAX - 3, 0, 8), kInvalidArgument);
    EXPECT_EQ(scatter(400, 0, 800), kInvalidArgument);
    EXPECT_EQ(me.net.all_gather(me.comm, data, data, 400, 0, 800, buffer.mr, buffer.mr, &request), kInvalidArgument);
    void* mr = &mr;
    EXPECT_EQ(me.net.reg_mr(me.comm, data, 10, kPtrCuda, &mr), kInvalidArgument);
    EXPECT_EQ(mr, nullptr);
    EXPECT_EQ(me.net.reg_mr(me.comm, data, 10, 8, &mr), kInvalidArgument);
    EXPECT_EQ(me.net.dereg_mr(me.comm, nullptr), kSuccess);
    EXPECT_EQ(me.net.dereg_mr(nullptr, buffer.mr), kInvalidArgument);
    EXPECT_EQ(request, nullptr);
    ASSERT_EQ(all_reduce(me, buffer, 100, kFloat32, kSum, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess);
    EXPECT_EQ(buffer.bytes, reduced(kFloat32, kSum, 2, 0, 100));
    me.dereg_all();
  });
  EXPECT_THAT(collnet_log(), HasSubstr("sum, avg and max of 8 to 64 bit integers"));
}

// NCCL forgets the listener when connect fails, and asks again without one.
TEST(CollNetFailures, ConnectFailsCleanlyWhereARankLeft) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(12);
  std::vector<CollRank> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.push_back({*net, r, 2});
    ASSERT_EQ(net->init(&ranks.back().context, 42), kSuccess);
  }
  Bytes handle(kHandleBytes), other(kHandleBytes);
  void *listener = nullptr, *gone = nullptr, *comm = nullptr;
  ASSERT_EQ(net->listen(ranks[0].context, 0, handle.data(), &listener), kSuccess);
  ASSERT_EQ(net->listen(ranks[1].context, 0, other.data(), &gone), kSuccess);
  ASSERT_EQ(net->finalize(ranks[1].context), kSuccess);
  void* handles[] = {handle.data(), other.data()};
  EXPECT_EQ(net->connect(handles, 1, 0, listener, &comm), kInvalidArgument);
  EXPECT_THAT(collnet_log(), HasSubstr("allowed: 2 to 256 ranks"));
  void* again = nullptr;
  ASSERT_EQ(net->listen(ranks[0].context, 0, handle.data(), &again), kSuccess);
  const auto begin = steady_clock::now();
  EXPECT_NE(net->connect(handles, 2, 0, again, &comm), kSuccess);
  EXPECT_LT(seconds_since(begin), 40);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(net->connect(handles, 2, 0, nullptr, &comm), kInvalidArgument);
  EXPECT_EQ(net->connect(handles, 2, 0, again, &comm), kInvalidUsage);
  EXPECT_EQ(net->close_listen(again), kSuccess);
  EXPECT_EQ(net->close_listen(again), kSuccess);
  EXPECT_EQ(net->finalize(ranks[0].context), kSuccess);
}

TEST(CollNetFailures, ALateRankIsWaitedForAsLongAsTheUserSays) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}, {"CLUSTAR_COLLNET_STALL", "1"}});
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    Buffer buffer(me, 10);
    void* request = nullptr;
    if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    ASSERT_EQ(all_reduce(me, buffer, 10, kFloat32, kSum, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess);
    if (me.rank == 0) {
      ASSERT_EQ(all_reduce(me, buffer, 10, kFloat32, kSum, &request), kSuccess);
      EXPECT_EQ(me.wait(request), kRemoteError);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(3000));
    }
    me.dereg_all();
  });
  EXPECT_THAT(collnet_log(), HasSubstr("nothing moved for 1 s"));
}

}  // namespace
}  // namespace clustar::tests
