// Threads that start, stop, ask and close in any order, with handles of each other, stale and made up: an answer is
// that of the collective that the step was started under, or none.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_plugin/profiler/profiler.h"
#include "tests/unit/nccl_plugin/profiler/chained_profiler.h"
#include "tests/unit/nccl_plugin/profiler/profiler_events.h"

namespace clustar::nccl_plugin {
namespace {

constexpr int kThreads = 8;
constexpr int kVersion = 5;

// Each step that a thread started, with what must be answered for it.
struct Started {
  void* step = nullptr;
  std::uint64_t bytes = 0;  // names the collective: no two have the same
  std::uint32_t transfer = 0;
};

// Handles that any thread may misuse.
class Bazaar {
 public:
  void put(std::uint32_t at, void* handle) { stalls_[at % stalls_.size()].store(handle, std::memory_order_relaxed); }
  void* take(std::uint32_t at) const { return stalls_[at % stalls_.size()].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<void*>, 64> stalls_{};
};

class Attacker {
 public:
  Attacker(Profiler& profiler, Bazaar& bazaar, void* context, std::uint32_t seed)
      : profiler_(profiler), comm_(profiler, kVersion), bazaar_(bazaar), seed_(seed), rng_(seed) {
    comm_.context = context;
  }

  // Bytes of AllReduce: unique among threads.
  void round() {
    const std::uint64_t bytes = (std::uint64_t{seed_} << 32 | ++serial_) * 4;
    void* const coll = comm_.coll({.number = serial_, .count = bytes / 4}, comm_.coll_api(roll(4) == 0));
    bazaar_.put(rng_(), coll);
    if (roll(2) == 0) comm_.stop(coll);
    mischief();
    void* const op = comm_.op(coll, 16, 0, roll(16) == 0 ? -1 : ::getpid());
    bazaar_.put(rng_(), op);
    std::vector<Started> steps;
    for (std::uint32_t t = 0; t < 4 + roll(12); ++t) {
      if (roll(10) == 0) continue;
      steps.push_back({comm_.step(op, static_cast<int>(t)), bytes, t});
      bazaar_.put(rng_(), steps.back().step);
      mischief();
      check(steps[roll(static_cast<std::uint32_t>(steps.size()))]);
      if (roll(2) == 0) comm_.stop(steps[roll(static_cast<std::uint32_t>(steps.size()))].step);
    }
    if (roll(2) == 0) comm_.stop(op);
    for (const Started& started : steps) comm_.stop(started.step);
    comm_.stop(op);
    comm_.stop(coll);
  }
  std::uint64_t answered() const { return answered_; }
  std::uint64_t wrong() const { return wrong_; }

 private:
  std::uint32_t roll(std::uint32_t sides) { return static_cast<std::uint32_t>(rng_() % sides); }

  void check(const Started& started) {
    const MessageQuery query = comm_.ask(started.step);
    if (!query.facts.identified) return;
    ++answered_;
    const bool right = query.identity.total_bytes == started.bytes && query.identity.transfer == started.transfer &&
                       query.facts.collective.bytes == started.bytes && query.facts.transfer == started.transfer &&
                       query.facts.transfers == 16;
    if (!right) ++wrong_;
  }

  void mischief() {
    void* const other = bazaar_.take(rng_());
    switch (roll(8)) {
      case 0: comm_.stop(other); break;
      case 1: comm_.ask(other); break;
      case 2: bazaar_.put(rng_(), comm_.step(other, static_cast<int>(roll(20)))); break;
      case 3: bazaar_.put(rng_(), comm_.op(other, 3)); break;
      case 4: comm_.stop(reinterpret_cast<void*>(reinterpret_cast<std::uint64_t>(other) ^ 1ull << roll(64))); break;
      case 5: profiler_.record(other, 20, nullptr); break;
      case 6: comm_.ask(reinterpret_cast<void*>(reinterpret_cast<std::uint64_t>(other) + roll(3) - 1)); break;
      default: break;
    }
  }

  Profiler& profiler_;
  TestComm comm_;
  Bazaar& bazaar_;
  const std::uint64_t seed_;
  std::mt19937 rng_;
  std::uint64_t serial_ = 0;
  std::uint64_t answered_ = 0;
  std::uint64_t wrong_ = 0;
};

struct Battle {
  std::uint64_t answered = 0;
  std::uint64_t wrong = 0;
};

// Communicators come and go while others work.
Battle fight(std::uint32_t seed, int rounds, const std::shared_ptr<const ChainProfiler>& chain) {
  constexpr int kLives = 4;
  CommRegistry registry;
  const std::atomic<bool> critical{false};
  const Profiler::Options small{.contexts = 16, .collectives = 48, .operations = 48, .others = 16};
  const auto profiler = std::make_unique<Profiler>(small, registry, critical);
  Bazaar bazaar;
  std::atomic<std::uint64_t> answered{0}, wrong{0};
  const auto attack = [&](std::uint32_t number) {
    Profiler::Opening opening;
    opening.comm = {.comm_id = number, .name = {}, .ranks = 2, .nodes = 2, .rank = 0, .traffic_class = -1};
    opening.chain = chain;
    opening.version = kVersion;
    for (std::uint32_t life = 0; life < kLives; ++life) {
      const auto context = profiler->open(opening, nullptr);
      if (!context) continue;
      Attacker attacker(*profiler, bazaar, *context, seed * 1000 + number * 10 + life);
      for (int i = 0; i < rounds / kLives; ++i) attacker.round();
      profiler->close(*context);
      answered += attacker.answered();
      wrong += attacker.wrong();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < kThreads; ++i) threads.emplace_back(attack, i + 1);
  }
  return {answered, wrong};
}

TEST(PluginProfilerHostile, AnAnswerIsRightOrNone) {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) {
    const Battle result = fight(seed, 2000, nullptr);
    EXPECT_EQ(result.wrong, 0u) << "seed " << seed;
    EXPECT_GT(result.answered, 1000u) << "seed " << seed;
  }
}

TEST(PluginProfilerHostile, AContextMayCloseUnderItsEvents) {
  CommRegistry registry;
  const std::atomic<bool> critical{false};
  const auto profiler = std::make_unique<Profiler>(
      Profiler::Options{.contexts = 2, .collectives = 64, .operations = 64, .others = 8}, registry, critical);
  Profiler::Opening opening;
  opening.comm = {.comm_id = 1, .name = "a name that needs memory of its own", .ranks = 2, .nodes = 2, .rank = 0};
  opening.version = kVersion;
  std::atomic<void*> context{nullptr};
  std::atomic<bool> over{false};
  const auto work = [&] {
    TestComm comm(*profiler, kVersion);
    for (std::uint64_t i = 0; !over; ++i) {
      comm.context = context;
      void* const coll = comm.coll({.number = i}, nullptr);
      comm.stop(coll);
      comm.stop(comm.op(coll, 2));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(work);
    for (int i = 0; i < 60; ++i) {
      const auto opened = profiler->open(opening, nullptr);
      if (!opened) continue;
      context = *opened;
      std::this_thread::yield();
      profiler->close(*opened);
      profiler->close(*opened);
    }
    over = true;
  }
  EXPECT_GE(profiler->counters().stale, 60u);
}

TEST(PluginProfilerHostile, TheSecondProfilerSeesEachEventOnceAndNoneAfterItsEnd) {
  const std::string path = std::string(CLUSTAR_CHAINED) + "_v5.so";
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  **static_cast<int**>(::dlsym(library, "chained_profiler_mask")) = 0x7fff;
  const auto take = *static_cast<tests::ChainedTake*>(::dlsym(library, "chained_profiler_take"));
  take();
  auto chain = ChainProfiler::open(path);
  ASSERT_TRUE(chain) << chain.error().message;
  const Battle result = fight(5, 80, std::shared_ptr<const ChainProfiler>(std::move(*chain)));
  EXPECT_EQ(result.wrong, 0u);
  std::set<void*> contexts, started, running;
  std::uint64_t mistakes = 0;
  for (const tests::ChainedCall& call : take()) {
    if (call.call == "init") contexts.insert(call.handle);
    if (call.call == "finalize") mistakes += 1 - contexts.erase(call.handle);
    if (call.call == "start") {
      mistakes += 1 - contexts.count(call.context);
      mistakes += call.parent != nullptr && started.count(call.parent) == 0 ? 1 : 0;
      started.insert(call.handle);
      running.insert(call.handle);
    }
    if (call.call == "stop") mistakes += 1 - running.erase(call.handle);
    if (call.call == "record") mistakes += 1 - started.count(call.handle);
  }
  EXPECT_EQ(mistakes, 0u);
  EXPECT_GT(started.size(), 1000u);
  EXPECT_TRUE(contexts.empty());
  ::dlclose(library);
}

}  // namespace
}  // namespace clustar::nccl_plugin
