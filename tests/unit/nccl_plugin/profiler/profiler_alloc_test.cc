// Identity, verdict and book-keeping allocate nothing per collective, operation, step or message: operator new of this
// executable counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nccl_plugin/api/reception_book.h"
#include "nccl_plugin/loss/settings.h"
#include "nccl_plugin/net/message_flow.h"
#include "nccl_plugin/profiler/profiler.h"
#include "tests/unit/count_allocations.h"
#include "tests/unit/nccl_plugin/profiler/profiler_events.h"

namespace clustar::nccl_plugin {
namespace {

TEST(PluginProfilerAlloc, EventsAndAnswersAllocateNothing) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << tests::kWhyNotCounted;
  {
    const tests::Counting counting;
    const auto vector = std::make_unique<std::vector<int>>(10);
  }
  ASSERT_GT(tests::counted_allocations(), 0u) << "the counter counts";

  LossSettings config;
  config.rules = "comm=data*,bytes=1M-,p=0.02;comm=*";
  const auto policy = LossPolicy::create(config);
  CommRegistry registry;
  const std::atomic<bool> critical{false};
  const auto profiler = std::make_unique<Profiler>(Profiler::Options(), registry, critical);
  Profiler::Opening opening;
  // A name too long for a string without memory of its own.
  opening.comm = {.comm_id = 1, .name = "data-parallel-group-of-the-whole-world", .ranks = 4, .nodes = 4, .rank = 0};
  ASSERT_TRUE(policy) << policy.error().message;
  opening.policy = std::make_shared<const LossPolicy>(*policy);
  TestComm comm(*profiler, 5);
  comm.open(opening);
  const NetGuard guard{true, true, 1u << nccl_abi::kAllReduce, 1u << nccl_abi::kRing, 1u << nccl_abi::kSimple};
  SendCounters sends;
  const auto book = std::make_unique<ReceptionBook>();
  const auto losses = std::make_unique<ReceptionBook>();
  const std::size_t size = 1 << 20;
  const transport::MissingRange hole{0, 0, 1000};
  transport::ReceivedMessage received;
  received.loss.ranks = 4;
  std::uint64_t unknown = 0;
  auto counting = std::make_optional<tests::Counting>();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    void* const api = comm.coll_api(false);
    comm.stop(api);
    void* const coll = comm.coll({.number = i}, api);
    comm.stop(coll);
    void* const op = comm.op(coll, 12);
    for (int t = 0; t < 12; ++t) {
      void* const step = comm.step(op, t);
      const MessageQuery query = comm.ask(step);
      if (query.identity.number != i) ++unknown;
      MessageFlow flow{{.coflow = coflow_of(query.identity), .identity = query.identity}, Reason::kLossy};
      flow.reason = decide(*policy, query.facts, {1, true, 20'000}, guard).reason;
      sends.add(flow);
      received.identity = query.identity;
      book->add({true, {&size, 1}, {&hole, 1}, {&received, 1}});
      comm.stop(step);
    }
    comm.stop(op);
    // And a send, of which the receiver and the sender keep what is missing.
    void* const send = comm.p2p("Send", 1 << 20, 2, comm.p2p_api(false), "ncclFloat32");
    comm.stop(send);
    void* const send_op = comm.op(send, 1);
    void* const step = comm.step(send_op, 0);
    const MessageQuery query = comm.ask(step);
    if (query.identity.number != i || query.facts.receiver != 2) ++unknown;
    received.identity = query.identity;
    book->add({true, {&size, 1}, {&hole, 1}, {&received, 1}});
    const transport::FlowTag tag{.identity = query.identity, .receiver = 2};
    losses->add_sent({true, {&size, 1}, {&hole, 1}, {}, &tag});
    comm.stop(step);
    comm.stop(send_op);
  }
  counting.reset();
  EXPECT_EQ(unknown, 0u);
  EXPECT_EQ(tests::counted_allocations(), 0u);
  tests::print_allocations();
  EXPECT_EQ(sends.sent(), 120'000u);
  comm.close();
}

}  // namespace
}  // namespace clustar::nccl_plugin
