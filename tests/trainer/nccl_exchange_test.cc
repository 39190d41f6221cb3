// The direct exchange in the memory of the emulated device: its kernels for real, over an NCCL and a CUDA runtime that
// are functions of this file, and a plugin that says what the test has told it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/trainer/nccl/communicator.h"
#include "bench/trainer/nccl/direct_exchange.h"
#include "gdr/launch/driver_calls.h"
#include "tests/trainer/fake_losses.h"

namespace clustar::bench::trainer {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr float kOfOthers = -1;     // what an all-gather brings of the blocks of others
constexpr float kGarbage = 777777;  // where something did not come

float given(int rank, std::size_t element) { return static_cast<float>(rank * 1000 + static_cast<int>(element % 97)); }

struct World {
  gdr::launch::DriverCalls driver{};
  int rank = 0;
  std::size_t count = 0;  // elements of the exchange
  std::map<void*, std::size_t> registered;
  int allocated = 0;
  int freed = 0;
  std::vector<std::pair<int, std::size_t>> sent;     // to whom, how many elements
  std::vector<proxy::ElementRange> lost_in_transit;  // of every peer's contribution
  bool sent_from_registered = true;
  bool late = false;  // callbacks wait for run_callbacks()
  std::vector<std::function<void()>> callbacks;
};
World world;

void settle(void* stream) {
  int state = gdr::launch::kNotReady;
  while (state == gdr::launch::kNotReady) state = world.driver.stream_query(stream);
  ASSERT_EQ(state, gdr::launch::kSuccess);
}

bool is_registered(const void* memory, std::size_t bytes) {
  return std::any_of(world.registered.begin(), world.registered.end(), [&](const auto& one) {
    const auto* const begin = static_cast<const char*>(one.first);
    const auto* const at = static_cast<const char*>(memory);
    return at >= begin && at + bytes <= begin + one.second;
  });
}

NcclLibrary library() {
  static int somewhere = 0;
  NcclLibrary made;
  made.nccl.comm_init_rank_config = [](void** comm, int, NcclUniqueId, int, NcclConfig*) {
    *comm = &somewhere;
    return kNcclSuccess;
  };
  made.nccl.comm_get_async_error = [](void*, int* error) { return *error = kNcclSuccess; };
  made.nccl.comm_finalize = made.nccl.comm_destroy = made.nccl.comm_abort = [](void*) { return kNcclSuccess; };
  made.nccl.comm_register = [](void*, void* memory, std::size_t bytes, void** handle) {
    world.registered[memory] = bytes;
    *handle = memory;
    return kNcclSuccess;
  };
  made.nccl.comm_deregister = [](void*, void* handle) {
    return world.registered.erase(handle) == 1 ? kNcclSuccess : 4;
  };
  made.nccl.group_start = made.nccl.group_end = [] { return kNcclSuccess; };
  made.nccl.send = [](const void* memory, std::size_t count, int type, int peer, void*, void* stream) {
    settle(stream);
    EXPECT_EQ(type, kNcclFloat32);  // bytes never lose
    world.sent.emplace_back(peer, count);
    world.sent_from_registered &= is_registered(memory, count * sizeof(float));
    return kNcclSuccess;
  };
  made.nccl.recv = [](void* memory, std::size_t count, int, int peer, void*, void* stream) {
    settle(stream);
    EXPECT_TRUE(is_registered(memory, count * sizeof(float)));
    const std::size_t begin = proxy::direct_block(world.rank, kRanks, world.count, sizeof(float)).begin;
    auto* const values = static_cast<float*>(memory);
    for (std::size_t i = 0; i < count; ++i) values[i] = given(peer, begin + i);
    for (const proxy::ElementRange& range : world.lost_in_transit) {
      std::fill(values + range.begin, values + range.end, kGarbage);
    }
    return kNcclSuccess;
  };
  made.nccl.all_gather = [](const void* own, void* all, std::size_t bytes, int, void*, void* stream) {
    settle(stream);
    EXPECT_EQ(own, static_cast<char*>(all) + static_cast<std::size_t>(world.rank) * bytes);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == world.rank) continue;
      auto* const block = reinterpret_cast<float*>(static_cast<char*>(all) + static_cast<std::size_t>(rank) * bytes);
      std::fill(block, block + bytes / sizeof(float), kOfOthers);
    }
    return kNcclSuccess;
  };
  made.nccl.get_error_string = [](int) { return "an error"; };
  made.nccl.get_last_error = [](void*) { return ""; };
  made.cuda.malloc = [](void** memory, std::size_t bytes) {
    ++world.allocated;
    return world.driver.memory_allocate(reinterpret_cast<unsigned long long*>(memory), bytes);
  };
  made.cuda.free = [](void* memory) {
    ++world.freed;
    return world.driver.memory_free(reinterpret_cast<unsigned long long>(memory));
  };
  made.cuda.host_register = [](void*, std::size_t, unsigned) { return kCudaSuccess; };
  made.cuda.host_unregister = [](void*) { return kCudaSuccess; };
  made.cuda.memcpy_async = [](void* to, const void* from, std::size_t bytes, int, void* stream) {
    settle(stream);
    std::memcpy(to, from, bytes);
    return kCudaSuccess;
  };
  made.cuda.launch_host_function = [](void* stream, void (*function)(void*), void* argument) {
    settle(stream);
    if (world.late) {
      world.callbacks.emplace_back([function, argument] { function(argument); });
    } else {
      function(argument);
    }
    return kCudaSuccess;
  };
  made.cuda.event_create = [](void** event, unsigned) {
    *event = &somewhere;
    return kCudaSuccess;
  };
  made.cuda.event_destroy = [](void*) { return kCudaSuccess; };
  made.cuda.event_record = [](void*, void*) { return kCudaSuccess; };
  made.cuda.event_query = [](void*) { return kCudaSuccess; };
  made.cuda.get_last_error = [] { return 0; };
  made.cuda.get_error_string = [](int) { return "an error"; };
  return made;
}

class NcclExchange : public testing::Test {
 protected:
  void SetUp() override {
    world = World{};
    const auto driver = gdr::launch::DriverCalls::open(CLUSTAR_EMULATED_LIBCUDA);
    ASSERT_TRUE(driver) << driver.error().message;
    world.driver = *driver;
    // What cudaSetDevice does of a process that uses the runtime.
    void* context = nullptr;
    ASSERT_EQ(world.driver.init(0), 0);
    ASSERT_EQ(world.driver.primary_context_retain(&context, 0), 0);
    ASSERT_EQ(world.driver.push(context), 0);
    void* const plugin = dlopen(CLUSTAR_FAKE_LOSSES, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(plugin, nullptr) << dlerror();
    losses_ = reinterpret_cast<FakeLosses* (*)()>(dlsym(plugin, "fake_losses"))();
    *losses_ = FakeLosses{};
  }

  void open(int rank, std::size_t count, const DirectOptions& terms = {}) {
    world.rank = rank;
    world.count = count;
    DirectOptions options = terms;
    options.driver = CLUSTAR_EMULATED_LIBCUDA;
    options.plugin = CLUSTAR_FAKE_LOSSES;
    auto made = DirectExchange::open(options, FakeLosses::kCommName, rank, kRanks);
    ASSERT_TRUE(made) << made.error().message;
    exchange_ = std::move(*made);
    communicator_ = std::make_unique<NcclCommunicator>(library(), NcclOptions{});
    ASSERT_TRUE(communicator_->connect(rank, kRanks, NcclUniqueId{}, exchange_->stream()));
    unsigned long long at = 0;
    ASSERT_EQ(world.driver.memory_allocate(&at, count * sizeof(float)), 0);
    values_ = reinterpret_cast<float*>(at);
    for (std::size_t i = 0; i < count; ++i) values_[i] = given(rank, i);
    ASSERT_TRUE(exchange_->adopt(*communicator_, reinterpret_cast<std::byte*>(values_), count * sizeof(float)));
  }

  ExchangeNotes all_reduce() {
    const auto notes = std::make_shared<ExchangeNotes>();
    const auto done = exchange_->all_reduce(*communicator_, values_, world.count, notes);
    EXPECT_TRUE(done) << done.error().message;
    settle(exchange_->stream());
    return *notes;
  }

  proxy::Block own() const { return proxy::direct_block(world.rank, kRanks, world.count, sizeof(float)); }

  // Of element i of the own block, of which rank `without` (-1: none) has contributed nothing.
  float sum(std::size_t i, int without, bool rescaled = true) const {
    float total = 0;
    for (int rank = 0; rank < kRanks; ++rank) total += rank == without ? 0 : given(rank, own().begin + i);
    if (without < 0 || !rescaled) return total;
    return static_cast<float>(double{total} * kRanks / (kRanks - 1));
  }

  void TearDown() override {
    if (exchange_ == nullptr) return;
    const bool aborted = communicator_->aborted();
    EXPECT_TRUE(aborted || exchange_->give_up_registrations(*communicator_));
    EXPECT_TRUE(communicator_->finalize());
    EXPECT_TRUE(exchange_->free_memory(*communicator_));
    EXPECT_TRUE(aborted || world.registered.empty());
    EXPECT_EQ(world.freed, world.allocated);
    world.driver.memory_free(reinterpret_cast<unsigned long long>(values_));
  }

  FakeLosses* losses_ = nullptr;
  std::unique_ptr<DirectExchange> exchange_;
  std::unique_ptr<NcclCommunicator> communicator_;
  float* values_ = nullptr;  // the emulated device's memory, which is this machine's
};

TEST_F(NcclExchange, SumsTheOwnBlockInRankOrderAndGathersTheOthers) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank > 0) {
      TearDown();
      SetUp();
    }
    open(rank, 37);  // blocks of 16, 16 and 5
    const ExchangeNotes notes = all_reduce();
    EXPECT_FALSE(notes.error);
    EXPECT_EQ(notes.missing, 0u);
    EXPECT_EQ(notes.expected, own().count * (kRanks - 1));
    for (std::size_t i = 0; i < world.count; ++i) {
      const bool mine = i >= own().begin && i < own().begin + own().count;
      ASSERT_EQ(values_[i], mine ? sum(i - own().begin, -1) : kOfOthers) << "rank " << rank << ", element " << i;
    }
    EXPECT_EQ(world.sent.size(), kRanks - 1u);
    EXPECT_TRUE(world.sent_from_registered);
    EXPECT_TRUE(losses_->marked.empty());
  }
}

TEST_F(NcclExchange, WhatDidNotComeIsTakenOutAndTheRestScaledUp) {
  open(1, 3 * 64);
  world.lost_in_transit = {{8, 20}};  // of both peers, but only rank 2's is told of
  losses_->missing[{2, 0}] = {{0, 8 * sizeof(float), 12 * sizeof(float)}};
  const ExchangeNotes notes = all_reduce();
  EXPECT_EQ(notes.missing, 12u);
  for (std::size_t i = 0; i < own().count; ++i) {
    const bool lost = i >= 8 && i < 20;
    // What rank 0's garbage is there for: it is added, so that this test sees a difference.
    const float total = kGarbage + given(1, own().begin + i);
    const float expected = lost ? static_cast<float>(double{total} * kRanks / 2) : sum(i, -1);
    ASSERT_EQ(values_[own().begin + i], expected) << "element " << i;
  }
}

TEST_F(NcclExchange, WithoutRescalingTheSumsOfTheOthersStay) {
  open(0, 3 * 64, {.missing = proxy::Missing::kZero});
  world.lost_in_transit = {};
  losses_->missing[{1, 0}] = {{0, 0, 4}};
  all_reduce();
  EXPECT_EQ(values_[0], sum(0, 1, false));
  EXPECT_EQ(values_[1], sum(1, -1));
}

// Each send has its number; what the last exchange lost does not stay in the tables of the next.
TEST_F(NcclExchange, ExchangesAreCounted) {
  open(2, 3 * 64);
  losses_->missing[{0, 0}] = {{0, 0, 16}};
  losses_->missing[{0, 2}] = {{0, 32, 8}};
  const std::vector<std::uint64_t> missing{4, 0, 2};
  for (const std::uint64_t of_exchange : missing) {
    for (std::size_t i = 0; i < world.count; ++i) values_[i] = given(2, i);
    EXPECT_EQ(all_reduce().missing, of_exchange);
    EXPECT_EQ(values_[own().begin], sum(0, of_exchange == 4 ? 0 : -1));
    EXPECT_EQ(values_[own().begin + 8], sum(8, of_exchange == 2 ? 0 : -1));
  }
}

// From NCCL's own buffers a send is several transfers.
TEST_F(NcclExchange, TransfersOfChunksAreFound) {
  constexpr std::size_t kElements = 3 * 64 * 1024;  // 256 KiB of each: transfers of 64 KiB
  open(0, kElements);
  losses_->missing[{1, 0}] = {{2, 4, 8}};
  EXPECT_EQ(all_reduce().missing, 2u);
  const std::size_t first = 2 * proxy::p2p_chunk_bytes(256 * 1024) / sizeof(float) + 1;
  EXPECT_EQ(values_[first - 1], sum(first - 1, -1));
  EXPECT_EQ(values_[first], sum(first, 1));
  EXPECT_EQ(values_[first + 1], sum(first + 1, 1));
  EXPECT_EQ(values_[first + 2], sum(first + 2, -1));
}

TEST_F(NcclExchange, TheLargestGradientsAreMarkedBeforeTheyAreSent) {
  open(1, 5000, {.important = 0.4});  // 5 blocks of 4 KiB, the last one short
  for (std::size_t i = 0; i < world.count; ++i) values_[i] = 0.001f;
  values_[1500] = -50;  // in block 1
  values_[4999] = 60;   // in block 4
  const void* const buffer = values_;
  all_reduce();
  ASSERT_EQ(losses_->marked.size(), 1u);
  const FakeLosses::Marks& marks = losses_->marked[0];
  EXPECT_EQ(marks.buffer, buffer);
  EXPECT_EQ(marks.bytes, world.count * sizeof(float));
  EXPECT_EQ(marks.block_bytes, 4096u);
  EXPECT_THAT(marks.important, ElementsAre(0, 1, 0, 0, 1));
  TearDown();
  EXPECT_THAT(losses_->forgotten, Contains(buffer));
  exchange_ = nullptr;
}

// A host that is ahead of its device starts the next bucket before the device has come to this one's callback.
TEST_F(NcclExchange, MarksAreOfTheirOwnBucketHoweverLargeTheNextOneIs) {
  open(1, 50'000, {.important = 0.5});
  std::fill(values_, values_ + world.count, 0.001f);
  values_[1500] = 10;
  values_[2100] = 10;
  world.late = true;
  const auto notes = std::make_shared<ExchangeNotes>();
  for (const std::size_t count : {std::size_t{4096}, world.count}) {  // 4 blocks, then 49
    world.count = count;
    ASSERT_TRUE(exchange_->all_reduce(*communicator_, values_, count, notes));
  }
  settle(exchange_->stream());
  for (const auto& callback : world.callbacks) callback();
  ASSERT_EQ(losses_->marked.size(), 2u);
  EXPECT_THAT(losses_->marked[0].important, ElementsAre(0, 1, 1, 0));
}

TEST_F(NcclExchange, BytesOutsideOfASendEndTheExchange) {
  for (const FakeLosses::Range& range : {FakeLosses::Range{0, 256, 8}, FakeLosses::Range{3, 0, 8}}) {
    open(0, 3 * 64);
    losses_->missing[{1, 0}] = {range};
    const ExchangeNotes notes = all_reduce();
    ASSERT_TRUE(notes.error);
    EXPECT_THAT(notes.error->message, HasSubstr("which elements they are is not known"));
    TearDown();
    exchange_ = nullptr;
    SetUp();
  }
}

TEST_F(NcclExchange, AnAbortIsToldWithItsCause) {
  open(0, 64);
  NcclPending earlier(*communicator_, NcclCommunicator::Clock::now(), nullptr);
  communicator_->abort(Error{ErrorCode::kSystem, "cudaMalloc: out of memory"});
  const auto outcome = earlier.wait();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "cudaMalloc: out of memory");
}

TEST_F(NcclExchange, AnAnswerThatTheApiDoesNotHaveEndsTheExchange) {
  open(1, 64);
  losses_->answer = 3;
  const ExchangeNotes notes = all_reduce();
  ASSERT_TRUE(notes.error);
  EXPECT_THAT(notes.error->message, HasSubstr("listMissingFrom"));
}

TEST_F(NcclExchange, ShortBucketsLeaveRanksWithoutABlock) {
  open(2, 4);  // all of it is rank 0's
  const ExchangeNotes notes = all_reduce();
  EXPECT_EQ(notes.expected, 0u);
  EXPECT_THAT(world.sent, ElementsAre(std::pair<int, std::size_t>(0, 4)));
  EXPECT_EQ(values_[0], kOfOthers);
}

TEST_F(NcclExchange, MarksNeedAPluginThatTakesThem) {
  DirectOptions options{.important = 0.1, .driver = CLUSTAR_EMULATED_LIBCUDA, .plugin = CLUSTAR_EMULATED_LIBCUDA};
  const auto made = DirectExchange::open(options, "train", 0, kRanks);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(made.error().message, HasSubstr("clustarApi_v2"));
}

}  // namespace
}  // namespace clustar::bench::trainer
