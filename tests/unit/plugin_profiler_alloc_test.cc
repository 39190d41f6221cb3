// Identity, verdict and book-keeping allocate nothing per collective, operation, step or message: operator new of this
// executable counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "nccl_plugin/api/reception_book.h"
#include "nccl_plugin/net/message_flow.h"
#include "nccl_plugin/profiler/profiler.h"
#include "tests/unit/plugin_profiler_events.h"
#include "transport/base/config.h"

namespace {

// One thread only.
bool counting = false;
std::uint64_t allocations = 0;

#if CLUSTAR_COUNT_ALLOCATIONS
void* allocate(std::size_t size, std::size_t alignment) {
  if (counting) ++allocations;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(size > 0 ? size : 1)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
#endif

}  // namespace

#if CLUSTAR_COUNT_ALLOCATIONS
// The library's other forms (arrays, nothrow) end in these. Not inlined: half a pair in sight looks like a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return allocate(size, 1); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace clustar::nccl_plugin {
namespace {

TEST(PluginProfilerAlloc, EventsAndAnswersAllocateNothing) {
  if (CLUSTAR_COUNT_ALLOCATIONS == 0) GTEST_SKIP() << "a sanitizer has operators of its own";
  counting = true;
  const auto vector = std::make_unique<std::vector<int>>(10);
  counting = false;
  ASSERT_GT(allocations, 0u) << "the counter counts";

  Config config;
  config.loss_rules = "comm=data*,bytes=1M-,p=0.02;comm=*";
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
  const std::size_t size = 1 << 20;
  const transport::MissingRange hole{0, 0, 1000};
  transport::ReceivedMessage received;
  received.loss.ranks = 4;
  allocations = 0;
  counting = true;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    void* const api = comm.coll_api(false);
    comm.stop(api);
    void* const coll = comm.coll({.number = i}, api);
    comm.stop(coll);
    void* const op = comm.op(coll, 12);
    for (int t = 0; t < 12; ++t) {
      void* const step = comm.step(op, t);
      const MessageQuery query = comm.ask(step);
      if (query.identity.number != i) ++allocations;
      MessageFlow flow{{.coflow = coflow_of(query.identity), .identity = query.identity}, Reason::kLossy};
      flow.reason = decide(*policy, query.facts, {1, true, 20'000}, guard).reason;
      sends.add(flow);
      received.identity = query.identity;
      book->add({true, {&size, 1}, {&hole, 1}, {&received, 1}});
      comm.stop(step);
    }
    comm.stop(op);
  }
  counting = false;
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(sends.sent(), 120'000u);
  comm.close();
}

}  // namespace
}  // namespace clustar::nccl_plugin
