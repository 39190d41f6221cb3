// From NCCL's events to the collective of a message.
#include "nccl_plugin/profiler/profiler.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "nccl_plugin/loss/settings.h"
#include "tests/unit/nccl_plugin/profiler/profiler_events.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

constexpr std::uint64_t kComm = 0xabcdef0123456789ull;
constexpr std::uint32_t kRanks = 4;
constexpr int kClass = 7;

class PluginProfiler : public testing::TestWithParam<int> {
 protected:
  explicit PluginProfiler(
      const Profiler::Options& options = {.contexts = 8, .collectives = 32, .operations = 32, .others = 8})
      : profiler_(std::make_unique<Profiler>(options, registry_, critical_)), comm_(*profiler_, GetParam()) {
    LossSettings config;
    config.traffic_classes = std::to_string(kClass);
    config.tolerance_ppm = 20'000;
    config.critical_tolerance_ppm = 1'000;
    config.warmup = 0;
    auto policy = LossPolicy::create(config);
    EXPECT_TRUE(policy) << policy.error().message;
    opening_.policy = std::make_shared<const LossPolicy>(*policy);
    opening_.comm = {.comm_id = kComm, .name = "dp", .ranks = kRanks, .nodes = 2, .rank = 1, .traffic_class = -1};
    opening_.version = GetParam();
    registry_.add_net(kComm, kClass);
    comm_.open(opening_);
  }
  ~PluginProfiler() override { comm_.close(); }

  // From API call to operation, in NCCL's order: the collective stops before its operation starts.
  void* operation(const TestCollective& collective, bool captured = false, std::uint8_t channel = 0) {
    void* const api = v5() ? comm_.coll_api(captured) : nullptr;
    comm_.stop(api);
    void* const coll = comm_.coll(collective, api);
    comm_.stop(coll);
    return comm_.op(coll, 12, channel);
  }
  // The first message of a collective.
  MessageQuery first(const TestCollective& collective, bool captured = false) {
    void* const op = operation(collective, captured);
    void* const step = comm_.step(op, 0);
    const MessageQuery query = comm_.ask(step);
    comm_.stop(step);
    comm_.stop(op);
    return query;
  }
  bool v5() const { return GetParam() >= 5; }

  CommRegistry registry_;
  std::atomic<bool> critical_{false};
  std::unique_ptr<Profiler> profiler_;
  Profiler::Opening opening_;
  TestComm comm_;
};

TEST_P(PluginProfiler, AsksForWhatItNeeds) {
  int needed = kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventNetPlugin;
  if (v5()) needed |= kEventCollApi | kEventP2pApi;
  EXPECT_EQ(comm_.mask, needed);
}

TEST_P(PluginProfiler, AMessageKnowsItsCollective) {
  void* const op = operation({.number = 5, .count = 1000}, false, 3);
  ASSERT_NE(op, nullptr);
  for (int t = 0; t < 12; ++t) {
    void* const step = comm_.step(op, t);
    void* handle = step;
    const MessageQuery query = comm_.ask(step, &handle);
    EXPECT_EQ(handle, nullptr) << "nothing is kept of it";
    const MessageFacts& facts = query.facts;
    EXPECT_TRUE(facts.identified);
    EXPECT_TRUE(facts.in_order);
    EXPECT_EQ(facts.comm_id, kComm);
    EXPECT_EQ(facts.ranks, kRanks);
    EXPECT_EQ(facts.edges, kRanks);
    EXPECT_EQ(facts.transfers, 12u);
    EXPECT_EQ(facts.transfer, static_cast<std::uint32_t>(t));
    EXPECT_EQ(facts.size, 77u) << "the caller's";
    EXPECT_EQ(facts.collective.bytes, 4000u);
    EXPECT_EQ(facts.collective.function, kAllReduce);
    EXPECT_EQ(facts.collective.datatype, 7);
    EXPECT_EQ(facts.collective.algorithm, kRing);
    EXPECT_EQ(facts.collective.protocol, kSimple);
    EXPECT_FALSE(facts.collective.captured);
    EXPECT_EQ(facts.verdict.reason, Reason::kLossy);
    EXPECT_EQ(facts.verdict.tolerance_ppm, 20'000u);
    const transport::MessageIdentity expected{.known = true,
                                              .local_number = false,
                                              .communicator = kComm,
                                              .number = 5,
                                              .total_bytes = 4000,
                                              .transfer = static_cast<std::uint32_t>(t),
                                              .channel = 3,
                                              .function = kAllReduce,
                                              .datatype = 7,
                                              .algorithm = kRing,
                                              .protocol = kSimple};
    EXPECT_EQ(query.identity, expected);
    comm_.stop(step);
  }
  comm_.stop(op);
  EXPECT_EQ(profiler_->counters().alive, 0u);
  EXPECT_EQ(profiler_->counters().stale, 0u);
}

TEST_P(PluginProfiler, BytesAreThoseOfOneRanksInput) {
  EXPECT_EQ(first({.func = "ReduceScatter", .count = 1000}).identity.total_bytes, 16'000u) << "a count per rank";
  EXPECT_EQ(first({.func = "AllGather", .count = 1000, .datatype = "ncclInt8"}).identity.total_bytes, 1000u);
  EXPECT_EQ(first({.number = 0, .count = 8, .datatype = "ncclBfloat16"}).identity.total_bytes, 16u);
  EXPECT_EQ(first({.number = 1, .count = 8, .datatype = "Unknown"}).identity.datatype, 1) << "ncclUint8 has no word";
  EXPECT_EQ(first({.number = 2, .count = std::numeric_limits<std::uint64_t>::max()}).identity.total_bytes, 0u);
  const MessageQuery strange = first({.func = "Sort", .datatype = "ncclFloat4", .algo = nullptr, .proto = "LL3"});
  EXPECT_TRUE(strange.facts.identified);
  EXPECT_TRUE(strange.identity.local_number);
  EXPECT_EQ(strange.identity.total_bytes, 0u);
  EXPECT_EQ(strange.identity.function, transport::MessageIdentity::kUnknown);
  EXPECT_EQ(strange.identity.algorithm, transport::MessageIdentity::kUnknown);
  EXPECT_EQ(strange.facts.collective.protocol, -1);
  EXPECT_NE(strange.facts.verdict.reason, Reason::kLossy);
}

TEST_P(PluginProfiler, OneNumberCountsAllReducesAndReduceScatters) {
  // The application's order; each function's number is its own.
  std::uint32_t expected = 0;
  std::array<std::uint64_t, 2> numbers{};
  for (const int which : {0, 1, 1, 0, 0, 0, 1, 0}) {
    const auto query = first({.func = which == 0 ? "AllReduce" : "ReduceScatter", .number = numbers[which]++});
    EXPECT_EQ(query.facts.ledger_number, expected);
    EXPECT_EQ(query.facts.collective.ordinal, expected);
    EXPECT_EQ(query.identity.number, numbers[which] - 1);
    ++expected;
  }
  first({.func = "AllGather", .number = 0});
  EXPECT_EQ(first({.number = numbers[0]}).facts.ledger_number, expected) << "no others";
}

TEST_P(PluginProfiler, ANewVerdictComesWithTheNextCollectiveOnly) {
  void* const before = operation({.number = 0});
  critical_ = true;
  void* const after = operation({.number = 1});
  EXPECT_EQ(comm_.ask(comm_.step(before, 0)).facts.verdict.tolerance_ppm, 20'000u);
  EXPECT_EQ(comm_.ask(comm_.step(after, 0)).facts.verdict.tolerance_ppm, 1'000u);
}

TEST_P(PluginProfiler, PointToPointCountsItsStarts) {
  for (std::uint64_t i = 0; i < 3; ++i) {
    void* const send = comm_.p2p("Send", 4096);
    comm_.stop(send);
    const MessageQuery query = comm_.ask(comm_.step(comm_.op(send, 1), 0));
    EXPECT_TRUE(query.identity.known);
    EXPECT_TRUE(query.identity.local_number);
    EXPECT_EQ(query.identity.number, i);
    EXPECT_EQ(query.identity.total_bytes, 4096u);
    EXPECT_EQ(query.identity.function, kSend);
    EXPECT_EQ(query.identity.protocol, transport::MessageIdentity::kUnknown);
    EXPECT_NE(query.facts.verdict.reason, Reason::kLossy);
  }
}

TEST_P(PluginProfiler, SendsCountByReceiver) {
  std::map<int, std::uint64_t> sent;
  for (const int peer : {0, 3, 3, 1, 0, 3, 2}) {
    comm_.stop(comm_.p2p("Recv", 4096, peer));  // counts for nothing
    const MessageQuery query = comm_.ask(comm_.step(comm_.op(comm_.p2p("Send", 4096, peer), 1), 0));
    EXPECT_TRUE(query.identity.known);
    EXPECT_EQ(query.identity.number, sent[peer]);
    EXPECT_EQ(query.identity.sender, 1) << "this rank";
    EXPECT_EQ(query.facts.collective.ordinal, sent[peer]);
    EXPECT_EQ(query.facts.ledger_number, sent[peer]);
    EXPECT_EQ(query.facts.receiver, peer);
    EXPECT_EQ(query.facts.channels, 2u);
    ++sent[peer];
  }
  for (const int nobody : {-1, 4, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    const MessageQuery query = comm_.ask(comm_.step(comm_.op(comm_.p2p("Send", 4096, nobody), 1), 0));
    EXPECT_FALSE(query.identity.known) << nobody;
    EXPECT_FALSE(query.facts.identified);
  }
}

TEST_P(PluginProfiler, ASendThatAGraphMayHaveCapturedIsTakenForIt) {
  const auto captured = [&](void* api) {
    return comm_.ask(comm_.step(comm_.op(comm_.p2p("Send", 4096, 1, api), 1), 0)).facts.collective.captured;
  };
  EXPECT_TRUE(captured(nullptr)) << "nobody says that it was not";
  if (!v5()) return;
  EXPECT_NE(comm_.mask & static_cast<int>(kEventP2pApi), 0);
  EXPECT_FALSE(captured(comm_.p2p_api(false)));
  EXPECT_TRUE(captured(comm_.p2p_api(true)));
}

TEST_P(PluginProfiler, AReplayOfAGraphIsToldApart) {
  EXPECT_FALSE(first({.number = 0}).facts.collective.captured);
  void* const api = v5() ? comm_.coll_api(true) : nullptr;
  comm_.stop(api);
  // NCCL hands back the handle of the call that the graph captured, at each replay, and does not count.
  for (std::uint64_t replay = 0; replay < 3; ++replay) {
    void* const coll = comm_.coll({.number = 1}, api);
    const MessageQuery query = comm_.ask(comm_.step(comm_.op(coll, 12), 0));
    EXPECT_TRUE(query.facts.identified);
    if (v5() || replay > 0) {
      EXPECT_TRUE(query.facts.collective.captured);
      EXPECT_TRUE(query.identity.local_number);
      EXPECT_EQ(query.identity.number, v5() ? replay : replay - 1);
      EXPECT_NE(query.facts.verdict.reason, Reason::kLossy);
    }
    comm_.stop(coll);
  }
  // v4 has no event of the API: the eager collective that takes the number at last is taken for a replay.
  EXPECT_EQ(first({.number = 1}).facts.collective.captured, !v5());
  EXPECT_FALSE(first({.number = 2}).facts.collective.captured);
}

// NCCL 2.27 begins no collective in a group without a handle.
TEST_P(PluginProfiler, AGroupIsKeptWhereItsTasksNeedIt) {
  void* const group = comm_.plain(nccl_abi::kEventGroup, nullptr);
  EXPECT_EQ(group != nullptr, !v5());
  comm_.stop(group);
  EXPECT_EQ(profiler_->counters().alive, 0u);
  EXPECT_EQ(profiler_->counters().stale, 0u);
}

TEST_P(PluginProfiler, WithoutItsApiEventACollectiveMayBeAReplay) {
  if (!v5()) GTEST_SKIP() << "v4 has no event of the API";
  std::array<int, 4> memory{};
  for (void* const api : {static_cast<void*>(nullptr), static_cast<void*>(memory.data()), comm_.context}) {
    void* const coll = comm_.coll({.number = 0}, api);
    EXPECT_TRUE(comm_.ask(comm_.step(comm_.op(coll, 12), 0)).facts.collective.captured);
  }
}

TEST_P(PluginProfiler, AnOperationHoldsItsCollective) {
  void* const coll = comm_.coll({.number = 9}, v5() ? comm_.coll_api(false) : nullptr);
  comm_.stop(coll);
  void* const op = comm_.op(coll, 12);
  for (std::uint64_t i = 0; i < 200; ++i) first({.number = 10 + i});
  void* const second = comm_.op(coll, 12, 1);
  EXPECT_EQ(comm_.ask(comm_.step(second, 0)).identity.number, 9u);
  comm_.stop(op);
  EXPECT_EQ(profiler_->counters().alive, 2u) << "the second, and the collective";
}

TEST_P(PluginProfiler, AnOperationOutlivesItsStopUntilItsStepsStop) {
  void* const op = operation({.number = 3});
  void* const step = comm_.step(op, 0);
  comm_.stop(op);
  for (std::uint64_t i = 0; i < 100; ++i) first({.number = 4 + i});
  EXPECT_EQ(comm_.ask(step).identity.number, 3u);
  comm_.stop(step);
  EXPECT_EQ(comm_.step(op, 1), nullptr);
  EXPECT_FALSE(comm_.ask(step).facts.identified);
  EXPECT_EQ(profiler_->counters().alive, 0u);
}

TEST_P(PluginProfiler, AMissingStepIsToldForGood) {
  void* const op = operation({});
  for (const int t : {0, 1, 3, 4}) {
    void* const step = comm_.step(op, t);
    EXPECT_EQ(comm_.ask(step).facts.in_order, t < 2);
    comm_.stop(step);
  }
  void* const late = operation({.number = 1});
  EXPECT_FALSE(comm_.ask(comm_.step(late, 1)).facts.in_order);
  void* const twice = operation({.number = 2});
  comm_.stop(comm_.step(twice, 0));
  EXPECT_FALSE(comm_.ask(comm_.step(twice, 0)).facts.in_order);
}

// NCCL keeps one handle for all tries of an irecv that gives no request.
TEST_P(PluginProfiler, AReceivesStepThatBeginsAgainIsTheSame) {
  void* const coll = comm_.coll({}, v5() ? comm_.coll_api(false) : nullptr);
  comm_.stop(coll);
  void* const op = comm_.op(coll, 12, 0, ::getpid(), false);
  void* const step = comm_.step(op, 0);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(comm_.step(op, 0), step);
  comm_.stop(step);
  comm_.stop(comm_.step(op, 1));
  comm_.stop(op);
  EXPECT_EQ(profiler_->counters().alive, 0u);
  EXPECT_EQ(profiler_->counters().exhausted, 0u);
}

TEST_P(PluginProfiler, MoreThanEightStepsAtATimeAreRefusedButCounted) {
  void* const op = operation({});
  std::vector<void*> steps;
  for (int t = 0; t < 8; ++t) steps.push_back(comm_.step(op, t));
  for (void* const step : steps) EXPECT_NE(step, nullptr);
  EXPECT_EQ(comm_.step(op, 8), nullptr);
  EXPECT_EQ(profiler_->counters().exhausted, 1u);
  comm_.stop(steps[1]);
  EXPECT_TRUE(comm_.ask(comm_.step(op, 9)).facts.in_order) << "8 was seen, though not kept";
}

TEST_P(PluginProfiler, ExhaustedCollectivesLeaveMessagesUnidentified) {
  std::vector<void*> held;
  for (std::uint64_t i = 0; i < 32; ++i)
    held.push_back(comm_.coll({.number = i}, v5() ? comm_.coll_api(false) : nullptr));
  for (void* const coll : held) EXPECT_NE(coll, nullptr);
  EXPECT_EQ(first({.number = 32}).facts.unidentified, Reason::kUnidentified);
  EXPECT_EQ(profiler_->counters().exhausted, 1u);
  for (void* const coll : held) comm_.stop(coll);
  EXPECT_EQ(first({.number = 33}).facts.ledger_number, 33u);
  EXPECT_TRUE(first({.number = 32}).facts.collective.captured) << "the number of the one refused was seen";
}

TEST_P(PluginProfiler, ExhaustedOperationsLeaveMessagesUnidentified) {
  std::vector<void*> held;
  for (std::uint64_t i = 0; i < 32; ++i) held.push_back(operation({.number = i}));
  for (void* const op : held) EXPECT_NE(op, nullptr);
  EXPECT_FALSE(first({.number = 32}).facts.identified);
  for (void* const op : held) comm_.stop(op);
  EXPECT_TRUE(first({.number = 33}).facts.identified);
}

TEST_P(PluginProfiler, TooManyCommunicatorsAreAnError) {
  std::vector<void*> contexts;
  for (;;) {
    int mask = 0;
    const auto opened = profiler_->open(opening_, &mask);
    if (!opened) {
      EXPECT_EQ(opened.error().code, ErrorCode::kUnavailable);
      break;
    }
    contexts.push_back(*opened);
    ASSERT_LT(contexts.size(), 8u);
  }
  EXPECT_EQ(contexts.size(), 7u);
  for (void* const context : contexts) profiler_->close(context);
  EXPECT_TRUE(profiler_->open(opening_, nullptr));
}

TEST_P(PluginProfiler, ChildrenOfNothingAreUnidentified) {
  EXPECT_EQ(comm_.op(nullptr, 12), nullptr);
  EXPECT_EQ(comm_.step(nullptr, 0), nullptr);
  const MessageQuery query = comm_.ask(nullptr);
  EXPECT_FALSE(query.facts.identified);
  EXPECT_FALSE(query.identity.known);
  EXPECT_EQ(query.facts.unidentified, Reason::kUnidentified);
  EXPECT_EQ(query.facts.size, 77u);
  EXPECT_EQ(profiler_->counters().stale, 0u);
}

TEST_P(PluginProfiler, AForeignProcessIsNamedAndItsPointersAreNotTouched) {
  TestComm foreign(*profiler_, GetParam());
  foreign.context = reinterpret_cast<void*>(0x10);
  void* const op = foreign.op(reinterpret_cast<void*>(0x20), 12, 5, ::getpid() + 1);
  ASSERT_NE(op, nullptr);
  void* const step = foreign.step(op, 0);
  const MessageQuery query = foreign.ask(step);
  EXPECT_FALSE(query.facts.identified);
  EXPECT_FALSE(query.identity.known);
  EXPECT_EQ(query.facts.unidentified, Reason::kForeignProcess);
  EXPECT_EQ(profiler_->counters().foreign, 1u);
  foreign.stop(step);
  foreign.stop(op);
  EXPECT_EQ(profiler_->counters().alive, 0u);
}

TEST_P(PluginProfiler, OnlyItsOwnQuestionIsAnswered) {
  void* const step = comm_.step(operation({}), 0);
  MessageQuery query;
  query.magic = 1;
  auto event = TestComm::blank(kEventNetPlugin, step);
  event.net_plugin.id = kNetEventId;
  event.net_plugin.data = &query;
  EXPECT_EQ(comm_.start(event), nullptr);
  EXPECT_FALSE(query.facts.identified);
  query.magic = MessageQuery::kMagic;
  event.net_plugin.id = 1 << 16 | 1;  // NCCL's IB
  EXPECT_EQ(comm_.start(event), nullptr);
  EXPECT_FALSE(query.facts.identified);
  event.net_plugin.id = kNetEventId;
  event.net_plugin.data = nullptr;
  EXPECT_EQ(comm_.start(event), nullptr);
}

TEST_P(PluginProfiler, StaleAndMadeUpHandlesAreHarmless) {
  void* const op = operation({});
  void* const step = comm_.step(op, 0);
  comm_.stop(step);
  comm_.stop(step);
  EXPECT_EQ(profiler_->counters().stale, 1u);
  void* const next = comm_.step(op, 8);  // in the same slot
  comm_.stop(step);
  EXPECT_FALSE(comm_.ask(step).facts.identified);
  EXPECT_TRUE(comm_.ask(next).facts.identified);
  comm_.stop(next);
  comm_.stop(op);
  comm_.stop(op);
  int local = 0;
  const std::uint64_t before = profiler_->counters().stale;
  std::uint64_t bits = 88172645463325252ull;
  for (int i = 0; i < 1000; ++i) {
    bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
    // Half of them carry this process's mark.
    const std::uint64_t marked = reinterpret_cast<std::uint64_t>(comm_.context) >> 52 << 52 | bits >> 12;
    void* const garbage = reinterpret_cast<void*>(i % 2 == 0 ? bits : marked);
    if (garbage == comm_.context) continue;
    comm_.stop(garbage);
    profiler_->record(garbage, 21, nullptr);
    profiler_->close(garbage);
    EXPECT_FALSE(comm_.ask(garbage).facts.identified);
  }
  comm_.stop(nullptr);
  comm_.stop(&local);
  comm_.stop(comm_.context);
  EXPECT_GT(profiler_->counters().stale, before);
  EXPECT_EQ(first({.number = 1}).identity.number, 1u);
}

TEST_P(PluginProfiler, ClosingForgetsWhatNeverStopped) {
  void* const op = operation({});
  void* const step = comm_.step(op, 0);
  EXPECT_EQ(profiler_->counters().alive, 2u);
  void* const old = comm_.context;
  comm_.close();
  EXPECT_EQ(profiler_->counters().alive, 0u);
  EXPECT_FALSE(comm_.ask(step).facts.identified);
  comm_.stop(step);
  comm_.stop(op);
  profiler_->close(old);
  comm_.open(opening_);
  EXPECT_NE(comm_.context, old);
  EXPECT_EQ(first({.number = 0}).facts.ledger_number, 0u) << "a new communicator counts from 0";
  TestComm gone(*profiler_, GetParam());
  gone.context = old;
  EXPECT_EQ(gone.coll({}, nullptr), nullptr);
}

TEST_P(PluginProfiler, HandlesOfMillionsOfEventsComeAndGo) {
  // Generations wrap around after 2^22.
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const MessageQuery query = first({.number = i});
    ASSERT_EQ(query.identity.number, i);
    ASSERT_TRUE(query.facts.in_order);
  }
  EXPECT_EQ(profiler_->counters().started, 60'000u);
  EXPECT_EQ(profiler_->counters().alive, 0u);
}

INSTANTIATE_TEST_SUITE_P(Versions, PluginProfiler, testing::Values(4, 5, 6),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

TEST(EventHandles, CarryEveryField) {
  const EventHandle handle{.kind = HandleKind::kStep,
                           .captured = true,
                           .index = EventHandle::kMaxIndex,
                           .generation = EventHandle::kGenerationMask,
                           .slot = 7,
                           .turn = EventHandle::kTurnMask};
  const EventHandle back = EventHandle::decode(handle.encode(0xabc), 0xabc);
  EXPECT_EQ(back.kind, handle.kind);
  EXPECT_EQ(back.captured, handle.captured);
  EXPECT_EQ(back.index, handle.index);
  EXPECT_EQ(back.generation, handle.generation);
  EXPECT_EQ(back.slot, handle.slot);
  EXPECT_EQ(back.turn, handle.turn);
  EXPECT_EQ(EventHandle::decode(handle.encode(0xabc), 0xabd).kind, HandleKind::kNone);
  EXPECT_EQ(EventHandle::decode(nullptr, 0x800).kind, HandleKind::kNone);
}

TEST(ObjectWords, GenerationsWrapAround) {
  ObjectWord word;
  for (std::uint32_t i = 0; i < EventHandle::kGenerationMask + 10; ++i) {
    ASSERT_TRUE(word.claim());
    ASSERT_FALSE(word.claim());
    word.publish();
    const std::uint32_t generation = word.generation();
    ASSERT_EQ(generation, (i + 1) & EventHandle::kGenerationMask);
    ASSERT_FALSE(word.claim());
    ASSERT_EQ(word.stop(generation), ObjectWord::Stop::kEnded);
  }
}

}  // namespace
}  // namespace clustar::nccl_plugin
