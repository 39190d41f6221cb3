// The collective network on GPU memory, which host memory plays (CLUSTAR_GDR_EMULATE): bytes move some polls later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "tests/plugin/collnet/network.h"
#include "tests/plugin/installation.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::byte kOld{0x5a};
const Variables kEmulated{{"NCCL_COLLNET_ENABLE", "1"}, {"CLUSTAR_GDR_EMULATE", "1"}};

struct Memory {
  Memory(CollRank& me, Bytes all, int type) : bytes(std::move(all)), mr(me.reg(bytes.data(), bytes.size(), type)) {}
  Bytes bytes;
  void* mr;
};

// One node of NCCL's topology stands for both networks, so both say the same.
TEST(CollNetGpu, TakesWhatTheNetTakes) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  void* context = nullptr;
  ASSERT_EQ(net->init(&context, 1), kSuccess);
  CollNetProperties properties;
  ASSERT_EQ(net->properties(0, &properties), kSuccess);
  EXPECT_EQ(properties.ptr_support, kPtrHost | kPtrCuda | kPtrDmaBuf);
  EXPECT_THAT(collnet_log(), HasSubstr("in host memory, to and from which GPU memory is copied"));
  EXPECT_EQ(net->finalize(context), kSuccess);
}

// The net plugin would reach GPU memory, and its node must not say so.
TEST(CollNetGpu, IsNotOfferedWhereNothingCopiesGpuMemory) {
  const Installation installation;  // without libclustar-cuda.so
  std::filesystem::copy_file(CLUSTAR_TEST_MODULE, installation.module("verbs"));
  const Environment environment(
      Variables{{"NCCL_COLLNET_ENABLE", "1"}, {"CLUSTAR_TRANSPORT", "verbs"}, {"CLUSTAR_IB_HCA", "device-memory"}});
  const auto net = CollNet::open(12, installation.plugin());
  void* context = nullptr;
  ASSERT_EQ(net->init(&context, 1), kSuccess);
  int devices = 7;
  EXPECT_EQ(net->devices(&devices), kSuccess);
  EXPECT_EQ(devices, 0);
  const std::string log = collnet_log();
  EXPECT_THAT(log, HasSubstr("CollNet is not offered: lo reaches GPU memory (by the test module)"));
  EXPECT_THAT(log, HasSubstr("libclustar-cuda.so"));
  EXPECT_THAT(log, HasSubstr("CLUSTAR_GDR=off keeps NCCL's buffers in host memory"));
  EXPECT_EQ(net->finalize(context), kSuccess);
}

void reduces(CollRank& me, int from, int to, int type, int op, std::size_t count) {
  Memory send(me, values(type, me.rank, 0, count), from);
  Memory recv(me, Bytes(count * element_size(type), kOld), to);
  void* request = nullptr;
  ASSERT_EQ(
      me.net.all_reduce(me.comm, send.bytes.data(), recv.bytes.data(), count, type, op, send.mr, recv.mr, &request),
      kSuccess)
      << collnet_log();
  ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
  ASSERT_EQ(recv.bytes, reduced(type, op, me.ranks, 0, count));
  ASSERT_EQ(send.bytes, values(type, me.rank, 0, count));
  me.dereg_all();
}

void scatters_and_gathers(CollRank& me, int from, int to, std::size_t per_rank, std::size_t window) {
  constexpr int kType = kInt32;
  constexpr std::size_t kElement = 4;
  const std::size_t n = static_cast<std::size_t>(me.ranks), all = per_rank * n;
  const std::size_t own = per_rank * static_cast<std::size_t>(me.rank);
  Memory send(me, values(kType, me.rank, 0, all), from), sum(me, Bytes(per_rank * kElement, kOld), to);
  Memory gathered(me, Bytes(all * kElement, kOld), from);
  for (const bool scatter : {true, false}) {
    std::vector<void*> requests;
    for (std::size_t at = 0; at < all; at += window) {
      const std::size_t bytes = std::min(window, all - at) * kElement, offset = at * kElement;
      const std::size_t begin = std::max(at, own), begin_own = begin < own + per_rank ? begin - own : 0;
      std::byte* const mine = &sum.bytes[begin_own * kElement];
      requests.push_back(nullptr);
      const int result = scatter ? me.net.reduce_scatter(me.comm, &send.bytes[offset], mine, per_rank * kElement,
                                                         offset, bytes, kType, kSum, send.mr, sum.mr, &requests.back())
                                 : me.net.all_gather(me.comm, mine, &gathered.bytes[offset], per_rank * kElement,
                                                     offset, bytes, sum.mr, gathered.mr, &requests.back());
      ASSERT_EQ(result, kSuccess) << collnet_log();
    }
    for (void* request : requests) ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    ASSERT_EQ(sum.bytes, reduced(kType, kSum, me.ranks, own, per_rank));
  }
  ASSERT_EQ(gathered.bytes, reduced(kType, kSum, me.ranks, 0, all));
  ASSERT_EQ(send.bytes, values(kType, me.rank, 0, all));
  me.dereg_all();
}

// What NCCL 2.28.9 asks for with NCCL_NET_GDR_READ=0: to receive in host memory, by the handle of GPU memory.
TEST(CollNetGpu, SaysWhatHelpsWhereNcclMixesUpItsBuffers) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    Memory send(me, Bytes(8000), kPtrHost), recv(me, Bytes(8000), kPtrCuda);
    void* request = nullptr;
    EXPECT_EQ(me.net.all_reduce(me.comm, send.bytes.data(), send.bytes.data() + 4000, 1000, kFloat32, kSum, send.mr,
                                recv.mr, &request),
              kInvalidArgument);
    me.dereg_all();
  });
  EXPECT_THAT(collnet_log(), HasSubstr("NCCL_NET_GDR_READ=1 has both in GPU memory"));
}

// A reduce-scatter sends from one and receives into the other, where NCCL_NET_GDR_READ=0.
TEST(CollNetGpu, AllCallsBetweenAllKindsOfMemory) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 3, [&](CollRank& me) {
    for (const int from : {kPtrHost, kPtrCuda}) {
      for (const int to : {kPtrHost, kPtrCuda}) {
        reduces(me, from, to, kFloat32, kSum, 10'001);
        reduces(me, from, to, kBfloat16, kMax, 3);
        reduces(me, from, to, kInt8, kSum, 0);
        scatters_and_gathers(me, from, to, 1001, 3003);
        scatters_and_gathers(me, from, to, 1001, 700);
      }
    }
  });
}

// As NCCL does: slots of one region, of which the halves are sent from and received into.
TEST(CollNetGpu, ManyAtOnceInOneRegion) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 4, [&](CollRank& me) {
    constexpr std::size_t kSlots = 24, kEach = 5001, kBytes = kEach * 4;
    Memory region(me, Bytes(kSlots * kBytes * 2, kOld), kPtrCuda);
    void* const same = me.reg(region.bytes.data(), region.bytes.size(), kPtrCuda);
    for (int round = 0; round < 3; ++round) {
      std::vector<void*> requests;
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        std::byte* const recv = &region.bytes[(kSlots + slot) * kBytes];
        std::byte* const send = slot % 3 == 1 ? recv : &region.bytes[slot * kBytes];
        std::ranges::copy(values(kInt32, me.rank, slot, kEach), send);
        requests.push_back(nullptr);
        ASSERT_EQ(me.net.all_reduce(me.comm, send, recv, kEach, kInt32, kSum, region.mr, same, &requests.back()),
                  kSuccess);
      }
      for (void* request : requests) ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        ASSERT_TRUE(std::ranges::equal(reduced(kInt32, kSum, me.ranks, slot, kEach),
                                       std::span(region.bytes).subspan((kSlots + slot) * kBytes, kBytes)));
      }
    }
    me.dereg_all();
  });
}

// Each sum is made where what is sent has its twin, so one waits for the other, whichever is tested.
TEST(CollNetGpu, SeveralSumsOfTheSameMemoryAtOnce) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    constexpr std::size_t kEach = 2001, kBytes = kEach * 4, kCalls = 6;
    Memory send(me, values(kInt32, me.rank, 0, 2 * kEach), kPtrCuda);
    Memory sums(me, Bytes(kCalls * kBytes, kOld), kPtrCuda);
    Memory whole(me, Bytes(2 * kBytes, kOld), kPtrHost);
    std::vector<void*> requests(kCalls + 1, nullptr);
    for (std::size_t i = 0; i < kCalls; ++i) {
      ASSERT_EQ(me.net.reduce_scatter(me.comm, send.bytes.data(), &sums.bytes[i * kBytes], kBytes, 0, 2 * kBytes,
                                      kInt32, i % 2 == 0 ? kSum : kMax, send.mr, sums.mr, &requests[i]),
                kSuccess);
    }
    ASSERT_EQ(me.net.all_reduce(me.comm, send.bytes.data(), whole.bytes.data(), 2 * kEach, kInt32, kSum, send.mr,
                                whole.mr, &requests[kCalls]),
              kSuccess);
    std::ranges::reverse(requests);
    for (void* request : requests) ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    const std::size_t own = kEach * static_cast<std::size_t>(me.rank);
    for (std::size_t i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(std::ranges::equal(reduced(kInt32, i % 2 == 0 ? kSum : kMax, 2, own, kEach),
                                     std::span(sums.bytes).subspan(i * kBytes, kBytes)))
          << i;
    }
    ASSERT_EQ(whole.bytes, reduced(kInt32, kSum, 2, 0, 2 * kEach));
    me.dereg_all();
  });
}

TEST(CollNetGpu, DmaBufsToo) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    Bytes data = values(kFloat32, me.rank, 0, 1000);
    const int fd = memfd_create("exported", 0);
    ASSERT_GE(fd, 0);
    void* mr = nullptr;
    ASSERT_EQ(me.net.reg_mr_dma_buf(me.comm, data.data(), data.size(), kPtrCuda, 0, fd, &mr), kSuccess);
    ::close(fd);
    me.registered.push_back(mr);
    void* request = nullptr;
    ASSERT_EQ(me.net.all_reduce(me.comm, data.data(), data.data(), 1000, kFloat32, kSum, mr, mr, &request), kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess) << collnet_log();
    ASSERT_EQ(data, reduced(kFloat32, kSum, 2, 0, 1000));
    me.dereg_all();
  });
}

// NCCL then copies by way of its own buffers.
TEST(CollNetGpu, MoreThanThereMayBePinnedIsRefusedAndChangesNothing) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  with_coll_ranks(*net, 2, [&](CollRank& me) {
    Memory small(me, values(kFloat32, me.rank, 0, 1000), kPtrCuda);
    void* mr = &mr;
    EXPECT_NE(me.net.reg_mr(me.comm, &me, std::size_t{4} << 30, kPtrCuda, &mr), kSuccess);
    EXPECT_EQ(mr, nullptr);
    void* request = nullptr;
    ASSERT_EQ(me.net.all_reduce(me.comm, small.bytes.data(), small.bytes.data(), 1000, kFloat32, kSum, small.mr,
                                small.mr, &request),
              kSuccess);
    ASSERT_EQ(me.wait(request), kSuccess);
    ASSERT_EQ(small.bytes, reduced(kFloat32, kSum, 2, 0, 1000));
    me.dereg_all();
  });
  EXPECT_THAT(collnet_log(),
              HasSubstr("of GPU memory beside 4000: they are copied by way of as much pinned host memory"));
}

// Wherever it is: before its copy, in the engine, on the way back.
TEST(CollNetGpu, NothingIsWrittenWhereMemoryWasTakenBack) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  for (int delay = 0; delay < 8; ++delay) {
    (void)collnet_log();
    with_coll_ranks(*net, 2, [&](CollRank& me) {
      constexpr std::size_t kFloats = 3000;
      Memory from(me, values(kFloat32, me.rank, 0, 2 * kFloats), kPtrCuda);
      Memory to(me, Bytes(2 * kFloats * 4, kOld), kPtrCuda);
      void* request = nullptr;
      ASSERT_EQ(me.net.all_reduce(me.comm, from.bytes.data(), to.bytes.data(), 2 * kFloats, kFloat32, kSum, from.mr,
                                  to.mr, &request),
                kSuccess);
      if (me.rank == 1) {
        (void)me.wait(request);
        me.dereg_all();
        return;
      }
      int done = 0, size = 0, result = kSuccess;
      for (int i = 0; i < 40 * delay && done == 0 && result == kSuccess; ++i) {
        result = me.net.test(request, &done, &size);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      void* const taken = delay % 2 == 0 ? to.mr : from.mr;
      ASSERT_EQ(me.net.dereg_mr(me.comm, taken), kSuccess);
      std::erase(me.registered, taken);
      Bytes& mine = delay % 2 == 0 ? to.bytes : from.bytes;
      std::memset(mine.data(), 0x77, mine.size());
      if (done == 0 && result == kSuccess) {
        EXPECT_NE(me.wait(request), kSuccess);
      }
      for (const std::byte one : mine) ASSERT_EQ(one, std::byte{0x77});
      me.dereg_all();
    });
    if (delay > 0) continue;
    EXPECT_THAT(collnet_log(), HasSubstr("it took back memory while an operation was under way there"));
  }
}

// Rank 1 never starts it; rank 0's bytes are in their twin, or on their way.
TEST(CollNetGpu, AnAbortInFlightEndsAllRanks) {
  const Environment environment(kEmulated);
  const auto net = CollNet::open(12);
  const auto begin = std::chrono::steady_clock::now();
  with_coll_ranks(*net, 3, [&](CollRank& me) {
    Memory memory(me, values(kFloat32, me.rank, 0, 5000), kPtrCuda);
    void* request = nullptr;
    if (me.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;  // it closes
    }
    ASSERT_EQ(me.net.all_reduce(me.comm, memory.bytes.data(), memory.bytes.data(), 5000, kFloat32, kSum, memory.mr,
                                memory.mr, &request),
              kSuccess);
    EXPECT_NE(me.wait(request), kSuccess);
    EXPECT_EQ(memory.bytes, values(kFloat32, me.rank, 0, 5000)) << "a sum that failed is nobody's";
    me.dereg_all();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace clustar::tests
