// Orders of events that random scenarios meet too seldom: real threads, a proxy far behind, a communicator that ends
// first, a process whose pools were full once.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/plugin/fake_nccl/scenario.h"
#include "tests/sanitized.h"

namespace clustar::tests::fake_nccl {
namespace {

using nccl_plugin::Reason;

// Everything may lose, ranks and names whatever they are.
const PolicyTruth& everything() { return policies().back(); }

struct Process {
  explicit Process(const nccl_plugin::Profiler::Options& options = {})
      : policy(std::make_shared<const nccl_plugin::LossPolicy>(
            nccl_plugin::LossPolicy::create(everything().config).value())),
        profiler(options, registry, critical) {}
  nccl_plugin::CommRegistry registry;
  std::atomic<bool> critical{false};
  std::shared_ptr<const nccl_plugin::LossPolicy> policy;
  nccl_plugin::Profiler profiler;
};

Communicator communicator(std::uint64_t id, std::uint32_t ranks) {
  Communicator comm;
  comm.id = id;
  comm.name = "dp";
  comm.ranks = comm.nodes = ranks;
  comm.channels = 2;
  comm.buffer_bytes = 1 << 20;
  return comm;
}

Task all_reduce(const Communicator& comm) {
  Task task;
  task.datatype = datatype_named("ncclFloat32");
  task.count = std::uint64_t{comm.ranks} * comm.channels * (comm.buffer_bytes / 2) / 4;  // one loop
  return task;
}

struct Rank {
  Rank(Process& process, const Communicator& drawn, std::uint64_t seed, bool pools_may_be_short = false)
      : comm(drawn),
        rng(seed),
        port(process.profiler, process.policy, comm, 5),
        wire(setup(process, pools_may_be_short), tally, rng),
        core(comm, port, wire) {}
  CheckingWire::Setup setup(const Process& process, bool pools_may_be_short) const {
    CheckingWire::Setup out;
    out.truth = &everything();
    out.policy = process.policy.get();
    out.comm = comm;
    out.channel = {comm.id, true, 10'000};
    out.pools_may_be_short = pools_may_be_short;
    return out;
  }
  void finish() {
    for (int i = 0; i < 10'000'000 && core.progress(); ++i) {
    }
  }
  void expect_no_failure() const {
    for (const std::string& text : tally.first_failures) ADD_FAILURE() << text;
  }
  std::uint64_t of(Reason reason) const { return tally.reasons[static_cast<std::size_t>(reason)]; }

  Communicator comm;
  Tally tally;
  Rng rng;
  DirectPort port;
  CheckingWire wire;
  Core core;
};

TEST(FakeNcclHostile, ApplicationAndProgressThreadsOfManyCommunicatorsAtOnce) {
  Process process;
  const int launches = kSanitized ? 200 : 400;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (std::uint32_t i = 0; i < 4; ++i) {
    ranks.push_back(std::make_unique<Rank>(process, communicator(100 + i, 3 + i), i));
  }
  std::vector<std::jthread> threads;
  for (auto& each : ranks) {
    Rank& rank = *each;
    auto ended = std::make_shared<std::atomic<bool>>(false);
    auto launched = std::make_shared<std::atomic<std::uint64_t>>(0);
    auto completed = std::make_shared<std::atomic<std::uint64_t>>(0);
    threads.emplace_back([&rank, ended, launched, completed] {
      Rng rng(rank.comm.id);
      for (int i = 0; i < launches; ++i) {
        // NCCL's own queues bound how far the application can be ahead of the proxy.
        while (*launched - *completed > 32) std::this_thread::yield();
        ++*launched;
        rank.core.launch(rank.core.enqueue(draw_task(rank.comm, rng)));
      }
      *ended = true;
    });
    threads.emplace_back([&rank, ended, launched, completed] {
      for (;;) {
        const bool last = *ended;
        const std::uint64_t seen = *launched;
        if (rank.core.progress()) continue;
        *completed = seen;
        if (last) return;
        std::this_thread::yield();
      }
    });
  }
  threads.clear();
  for (const auto& rank : ranks) {
    rank->expect_no_failure();
    EXPECT_GT(rank->tally.messages, 1000u);
    EXPECT_EQ(rank->tally.identified, rank->tally.messages);
    EXPECT_GT(rank->tally.lossy, 0u);
  }
}

TEST(FakeNcclHostile, AProxyThatIsThousandsOfCollectivesBehindIsUnidentifiedNeverWrong) {
  nccl_plugin::Profiler::Options options;
  options.collectives = 1000;
  Process process(options);
  Rank rank(process, communicator(7, 2), 1, true);
  for (int i = 0; i < 3000; ++i) rank.core.launch(rank.core.enqueue(all_reduce(rank.comm)));
  rank.finish();
  rank.expect_no_failure();
  EXPECT_GT(rank.of(Reason::kUnidentified), 0u);
  EXPECT_GT(rank.tally.lossy, 0u);
}

TEST(FakeNcclHostile, PoolsThatWereFullOnceServeAgain) {
  Process process;
  Rank first(process, communicator(7, 2), 1, true);
  // Never stopped: their objects stay taken until the communicator ends.
  for (int i = 0; i < 5000; ++i) {
    const auto run = first.core.enqueue(all_reduce(first.comm));
    first.core.begin_launch(std::span(&run, 1));
  }
  first.finish();
  first.expect_no_failure();
  EXPECT_GT(process.profiler.counters().exhausted, 0u);
  process.profiler.close(first.port.context());
  EXPECT_EQ(process.profiler.counters().alive, 0u);

  Rank second(process, communicator(8, 2), 1);
  second.core.launch(second.core.enqueue(all_reduce(second.comm)));
  second.finish();
  second.expect_no_failure();
  EXPECT_EQ(second.tally.identified, second.tally.messages);
  EXPECT_GT(second.tally.lossy, 0u);
}

TEST(FakeNcclHostile, ACommunicatorThatEndsBeforeItsMessagesLeavesThemUnidentified) {
  Process process;
  Rank rank(process, communicator(7, 4), 1, true);
  rank.core.launch(rank.core.enqueue(all_reduce(rank.comm)));
  for (int i = 0; i < 3; ++i) rank.core.progress();
  process.profiler.close(rank.port.context());
  rank.core.launch(rank.core.enqueue(all_reduce(rank.comm)));
  rank.finish();
  rank.expect_no_failure();
  EXPECT_GE(rank.of(Reason::kUnidentified), 8u);
  EXPECT_EQ(process.profiler.counters().alive, 0u);
}

}  // namespace
}  // namespace clustar::tests::fake_nccl
