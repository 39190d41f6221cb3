// What the collective network computes, by its tables of all versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/plugin/collnet/network.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0x5a};
constexpr int kOps[] = {kSum, kMax};

// Not offered unless asked for: NCCL then sees no device and never looks again.
TEST(CollNetOffer, NothingUnlessTheUserAsks) {
  for (const char* value : {"", "0"}) {
    const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", value}});
    const auto net = CollNet::open(12);
    void* context = nullptr;
    ASSERT_EQ(net->init(&context, 1), kSuccess);
    EXPECT_EQ(context, nullptr);
    int devices = 7;
    EXPECT_EQ(net->devices(&devices), kSuccess);
    EXPECT_EQ(devices, 0);
    void* listener = nullptr;
    Bytes handle(kHandleBytes);
    EXPECT_EQ(net->listen(context, 0, handle.data(), &listener), kInvalidArgument);
    EXPECT_EQ(net->finalize(context), kSuccess);
    EXPECT_THAT(collnet_log(), testing::Not(HasSubstr("CollNet")));
  }
}

TEST(CollNetOffer, SaysWhatItAddsUp) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(12);
  void* context = nullptr;
  ASSERT_EQ(net->init(&context, 1), kSuccess);
  EXPECT_THAT(collnet_log(), HasSubstr("CollNet is offered, by ParaExpress: sum, avg and max of"));
  for (int type = 0; type < 14; ++type) {
    for (int op = 0; op < 6; ++op) {
      int supported = -1;
      EXPECT_EQ(net->reduce_support(type, op, &supported), kSuccess);
      EXPECT_EQ(supported, type <= kBfloat16 && (op == kSum || op == kMax) ? 1 : 0) << type << " " << op;
    }
  }
  CollNetProperties properties;
  ASSERT_EQ(net->properties(0, &properties), kSuccess);
  EXPECT_EQ(properties.ptr_support, kPtrHost);
  EXPECT_EQ(properties.max_coll_bytes, std::size_t{1} << 30);
  EXPECT_EQ(net->properties(1, &properties), kInvalidArgument);
  EXPECT_EQ(net->finalize(context), kSuccess);
}

class CollNetVersion : public ::testing::TestWithParam<int> {};

TEST_P(CollNetVersion, AddsUpAllDatatypes) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(GetParam());
  with_coll_ranks(*net, 3, [&](CollRank& me) {
    Bytes send(8 * 5000, kUntouched), recv(8 * 5000, kUntouched);
    void* const send_mr = me.reg(send.data(), send.size());
    void* const recv_mr = me.reg(recv.data(), recv.size());
    for (int type = 0; type <= kBfloat16; ++type) {
      for (const int op : kOps) {
        for (const std::size_t count : {0ul, 1ul, 3ul, 4999ul}) {
          const Bytes mine = values(type, me.rank, 0, count);
          std::ranges::copy(mine, send.begin());
          void* request = nullptr;
          ASSERT_EQ(me.net.all_reduce(me.comm, send.data(), recv.data(), count, type, op, send_mr, recv_mr, &request),
                    kSuccess);
          ASSERT_NE(request, nullptr);
          ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
          const Bytes expected = reduced(type, op, me.ranks, 0, count);
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), recv.begin())) << type << " " << op << " " << count;
          ASSERT_TRUE(std::equal(mine.begin(), mine.end(), send.begin()));
        }
      }
    }
  });
}

// As NCCL does: windows one after the other, several at once, cut anywhere.
void reduce_scatter_and_gather(CollRank& me, int type, int op, std::size_t per_rank, std::size_t window) {
  const std::size_t element = element_size(type), n = static_cast<std::size_t>(me.ranks);
  const std::size_t all = per_rank * n, own = per_rank * static_cast<std::size_t>(me.rank);
  Bytes send = values(type, me.rank, 0, all), sum(per_rank * element, kUntouched), gathered(all * element, kUntouched);
  const Bytes sent = send;
  void* const send_mr = me.reg(send.data(), send.size());
  void* const sum_mr = me.reg(sum.data(), sum.size());
  void* const gathered_mr = me.reg(gathered.data(), gathered.size());
  for (const bool scatter : {true, false}) {
    std::vector<void*> requests;
    for (std::size_t at = 0; at < all; at += window) {
      const std::size_t bytes = std::min(window, all - at) * element, offset = at * element;
      const std::size_t begin = std::max(at, own), begin_own = begin < own + per_rank ? begin - own : 0;
      void* request = nullptr;
      const int result =
          scatter ? me.net.reduce_scatter(me.comm, &send[offset], &sum[begin_own * element], per_rank * element, offset,
                                          bytes, type, op, send_mr, sum_mr, &request)
                  : me.net.all_gather(me.comm, &sum[begin_own * element], &gathered[offset], per_rank * element, offset,
                                      bytes, sum_mr, gathered_mr, &request);
      ASSERT_EQ(result, kSuccess) << collnet_log();
      requests.push_back(request);
    }
    for (void* request : requests) ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    ASSERT_EQ(sum, reduced(type, op, me.ranks, own, per_rank));
  }
  ASSERT_EQ(gathered, reduced(type, op, me.ranks, 0, all));
  ASSERT_EQ(send, sent);
  me.dereg_all();
}

TEST_P(CollNetVersion, ScattersAndGathersByWindows) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(GetParam());
  for (const int ranks : {2, 4}) {
    with_coll_ranks(*net, ranks, [&](CollRank& me) {
      reduce_scatter_and_gather(me, kFloat32, kSum, 1001, 1001 * static_cast<std::size_t>(me.ranks));
      reduce_scatter_and_gather(me, kInt8, kMax, 777, 100);
      reduce_scatter_and_gather(me, kFloat64, kSum, 13, 11);
      reduce_scatter_and_gather(me, kBfloat16, kSum, 3000, 4001);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, CollNetVersion, ::testing::Values(8, 9, 10, 11, 12));

class CollNetTransport : public ::testing::TestWithParam<const char*> {};

// Slots of one registered region, several operations at once, and in place.
TEST_P(CollNetTransport, ManyAtOnceAndHuge) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}, {"CLUSTAR_TRANSPORT", GetParam()}});
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 4, [&](CollRank& me) {
    constexpr std::size_t kSlots = 8, kEach = 50001;
    Bytes region(kSlots * kEach * 4 * 2);
    void* const one = me.reg(region.data(), region.size());
    void* const same = me.reg(region.data(), region.size());
    std::vector<void*> requests;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      const bool in_place = slot % 2 == 1;
      std::byte* const recv = &region[(kSlots + slot) * kEach * 4];
      std::byte* const send = in_place ? recv : &region[slot * kEach * 4];
      std::ranges::copy(values(kInt32, me.rank, slot, kEach), send);
      requests.push_back(nullptr);
      ASSERT_EQ(me.net.all_reduce(me.comm, send, recv, kEach, kInt32, kSum, one, same, &requests.back()), kSuccess);
    }
    for (void* request : requests) ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      ASSERT_TRUE(std::ranges::equal(reduced(kInt32, kSum, me.ranks, slot, kEach),
                                     std::span(region).subspan((kSlots + slot) * kEach * 4, kEach * 4)));
    }
    constexpr std::size_t kHuge = 5'000'003;
    Bytes huge = values(kFloat32, me.rank, 0, kHuge);
    void* const mr = me.reg(huge.data(), huge.size());
    void* request = nullptr;
    ASSERT_EQ(me.net.all_reduce(me.comm, huge.data(), huge.data(), kHuge, kFloat32, kSum, mr, mr, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    ASSERT_EQ(huge, reduced(kFloat32, kSum, me.ranks, 0, kHuge));
    request = mr;
    EXPECT_EQ(me.net.flush(me.comm, huge.data(), 4, mr, &request), kSuccess);
    EXPECT_EQ(request, nullptr);
    me.dereg_all();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, CollNetTransport, ::testing::Values("tcp", "mlt"));

TEST(CollNetRanks, SixteenAgree) {
  const Environment environment(Variables{{"NCCL_COLLNET_ENABLE", "1"}});
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 16, [&](CollRank& me) {
    for (const int op : kOps) reduce_scatter_and_gather(me, kFloat16, op, 101, 101 * 16);
    Bytes data = values(kBfloat16, me.rank, 0, 70001);
    void* const mr = me.reg(data.data(), data.size());
    void* request = nullptr;
    ASSERT_EQ(me.net.all_reduce(me.comm, data.data(), data.data(), 70001, kBfloat16, kSum, mr, mr, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    ASSERT_EQ(data, reduced(kBfloat16, kSum, 16, 0, 70001));
    me.dereg_all();
  });
}

}  // namespace
}  // namespace clustar::tests
