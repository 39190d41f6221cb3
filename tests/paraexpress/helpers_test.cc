// Helpers in processes of their own: exact sums with them, and without those that are killed or stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "paraexpress/engine/helper.h"
#include "tests/child_ends.h"
#include "tests/paraexpress/engine_ranks.h"
#include "tests/sanitized.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

using bench::proxy::Bootstrap;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using transport::conformance::TransportUnderTest;

constexpr int kEnded = 0, kRankGone = 7;

// Ranks in threads of this process, helpers in children.
class Cluster {
 public:
  Cluster(const TransportUnderTest& which, std::uint32_t ranks, std::uint32_t helpers)
      : which_(which), ranks_(ranks), helpers_(helpers) {
    const auto root = Bootstrap::pick_loopback_root();
    if (!root) return;
    root_ = *root;
    for (std::uint32_t helper = 0; helper < helpers; ++helper) {
      children_.push_back(fork());
      if (children_.back() == 0) _exit(help(helper));
    }
  }
  ~Cluster() {
    for (const pid_t child : children_) {
      if (child > 0) kill(child, SIGKILL);
    }
    (void)ends();
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  void signal(std::uint32_t helper, int number) { kill(children_[helper], number); }
  void each_rank(const EngineOptions& common, const std::function<void(Engine&, Member)>& body) {
    EngineOptions options = common;
    options.helpers = helpers_;
    with_ranks_at(root_, which_, ranks_, options, body);
  }
  // How the helpers ended: exit statuses, or minus the signal.
  std::vector<int> ends() {
    std::vector<int> all;
    for (pid_t& child : children_) {
      if (child > 0) all.push_back(tests::end_of(std::exchange(child, 0)));
    }
    return all;
  }

 private:
  int help(std::uint32_t helper) const {
    const auto bootstrap = Bootstrap::join(
        {.rank = static_cast<int>(ranks_ + helper), .size = static_cast<int>(ranks_ + helpers_), .root = root_});
    const auto transport = which_.create({});
    if (!bootstrap || !transport) return 2;
    HelperOptions options;
    options.helper = helper;
    options.helpers = helpers_;
    options.ranks = ranks_;
    const std::atomic<bool> stop{false};
    const auto report = serve_as_helper(**transport, through(**bootstrap), options, stop);
    if (report) return report->operations > 0 ? kEnded : 3;
    return report.error().message.starts_with("rank ") ? kRankGone : 4;
  }

  const TransportUnderTest which_;
  const std::uint32_t ranks_, helpers_;
  std::string root_{};
  std::vector<pid_t> children_{};
};

std::vector<float> contribution(std::size_t count, Member rank, int round) {
  std::vector<float> values(count);
  Rng rng(rank * 1000 + static_cast<std::uint64_t>(round));
  for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5) * (rng.below(3) == 0 ? 1e6F : 1e-3F);
  return values;
}
// From rank 0 to the last: what every plan of stars gives.
std::vector<float> sum_of_all(std::size_t count, std::uint32_t ranks, int round) {
  std::vector<float> sum = contribution(count, 0, round);
  for (Member rank = 1; rank < ranks; ++rank) {
    const std::vector<float> one = contribution(count, rank, round);
    for (std::size_t i = 0; i < count; ++i) sum[i] += one[i];
  }
  return sum;
}

class HelpersOver : public testing::TestWithParam<TransportUnderTest> {};

TEST_P(HelpersOver, SumsAreExactWithAnyNumberOfThem) {
  for (const auto& [ranks, helpers, plan] : {std::tuple{2U, 1U, Plan::kSharded},
                                             {3U, 2U, Plan::kSharded},
                                             {2U, 3U, Plan::kSharded},
                                             {3U, 2U, Plan::kServer}}) {
    Cluster cluster(GetParam(), ranks, helpers);
    EngineOptions options;
    options.plan = plan;
    options.chunk_bytes = kLeastChunk;
    cluster.each_rank(options, [&, ranks = ranks, helpers = helpers, plan = plan](Engine& engine, Member rank) {
      EXPECT_EQ(engine.plan_for(1 << 20), plan);
      for (const std::size_t count : {1U, 5U, 10'007U}) {
        std::vector<float> values = contribution(count, rank, 0);
        ASSERT_TRUE(engine.add_memory(values.data(), values.size() * sizeof(float)));
        const auto seconds = engine.all_reduce(values.data(), count, DataType::kFloat32)->wait();
        ASSERT_TRUE(seconds) << seconds.error().message;
        EXPECT_EQ(values, sum_of_all(count, ranks, 0)) << ranks << " ranks, " << helpers << " helpers";
      }
      EXPECT_EQ(engine.helpers(), helpers);
    });
    EXPECT_THAT(cluster.ends(), testing::Each(kEnded));
  }
}

// In the middle of an operation one helper gets the signal: that operation and those behind it are exact all the same.
void lose_one(const TransportUnderTest& which, int number, int seed) {
  constexpr std::uint32_t kRanks = 3, kHelpers = 2;
  constexpr std::size_t kCount = 400'000;
  constexpr int kRounds = 6, kLast = 2;  // it lives so long
  Rng rng(static_cast<std::uint64_t>(seed));
  const std::uint32_t victim = static_cast<std::uint32_t>(rng.below(kHelpers));
  const auto wait = std::chrono::microseconds(rng.below(4000));
  std::vector<std::vector<float>> expected;
  for (int round = 0; round < kRounds; ++round) expected.push_back(sum_of_all(kCount, kRanks, round));
  Cluster cluster(which, kRanks, kHelpers);
  EngineOptions options;
  options.plan = Plan::kSharded;
  options.chunk_bytes = 32 << 10;
  std::vector<std::vector<float>> memory(kRanks);
  cluster.each_rank(options, [&](Engine& engine, Member rank) {
    std::vector<float>& values = memory[rank];
    values.resize(kCount);
    ASSERT_TRUE(engine.add_memory(values.data(), kCount * sizeof(float)));
    std::vector<std::vector<float>> given;
    for (int round = 0; round < kRounds; ++round) given.push_back(contribution(kCount, rank, round));
    for (int round = 0; round < kRounds; ++round) {
      std::ranges::copy(given[static_cast<std::size_t>(round)], values.begin());
      const auto begin = steady_clock::now();
      const auto operation = engine.all_reduce(values.data(), kCount, DataType::kFloat32);
      if (rank == 0 && round == kLast) {
        std::this_thread::sleep_for(wait);
        cluster.signal(victim, number);
      }
      const auto seconds = operation->wait();
      ASSERT_TRUE(seconds) << seconds.error().message;
      EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(tests::kSanitized ? 20 : 3));
      ASSERT_TRUE(values == expected[static_cast<std::size_t>(round)]) << "round " << round << " seed " << seed;
    }
    // On a machine that is busy the other one may have been silent for too long as well.
    EXPECT_LT(engine.helpers(), kHelpers) << "seed " << seed;
  });
}

TEST_P(HelpersOver, AKilledOneIsMadeUpFor) {
  for (int seed = 0; seed < 8; ++seed) lose_one(GetParam(), SIGKILL, seed);
}

TEST_P(HelpersOver, AStoppedOneIsMadeUpFor) {
  for (int seed = 0; seed < 2; ++seed) lose_one(GetParam(), SIGSTOP, seed);
}

// While all connect one dies or stands still, at each step: the ranks go on without it.
enum class Goes { kAfterItMet, kBeforeItSpeaks, kAfterItSpoke, kStandsStillBeforeItSpeaks, kStandsStill };

TEST_P(HelpersOver, OneThatIsLostWhileAllConnectIsLeftOut) {
  for (const Goes when : {Goes::kAfterItMet, Goes::kBeforeItSpeaks, Goes::kAfterItSpoke,
                          Goes::kStandsStillBeforeItSpeaks, Goes::kStandsStill}) {
    // Before it speaks no transport has a part in it.
    if (when == Goes::kStandsStillBeforeItSpeaks && GetParam().name != "tcp") continue;
    SCOPED_TRACE(static_cast<int>(when));
    const std::string root = Bootstrap::pick_loopback_root().value();
    const pid_t child = fork();
    if (child == 0) {
      const auto bootstrap = Bootstrap::join({.rank = 3, .size = 4, .root = root});
      if (!bootstrap || when == Goes::kAfterItMet) _exit(0);
      const auto transport = GetParam().create({});
      HelperOptions options;
      options.helper = 1;
      options.helpers = 2;
      options.ranks = 2;
      const auto gather = [&](std::span<const std::byte> mine) {
        if (when == Goes::kBeforeItSpeaks) (void)raise(SIGKILL);
        if (when == Goes::kStandsStillBeforeItSpeaks) (void)raise(SIGSTOP);
        auto all = (*bootstrap)->all_gather(mine);
        (void)raise(when == Goes::kAfterItSpoke ? SIGKILL : SIGSTOP);
        return all;
      };
      const std::atomic<bool> stop{false};
      (void)serve_as_helper(**transport, gather, options, stop);
      _exit(0);
    }
    const pid_t other = fork();
    if (other == 0) {
      const auto bootstrap = Bootstrap::join({.rank = 2, .size = 4, .root = root});
      const auto transport = GetParam().create({});
      HelperOptions options;
      options.helpers = 2;
      options.ranks = 2;
      const std::atomic<bool> stop{false};
      _exit(bootstrap && serve_as_helper(**transport, through(**bootstrap), options, stop) ? 0 : 1);
    }
    EngineOptions options;
    options.helpers = 2;
    options.plan = Plan::kSharded;
    const auto begin = steady_clock::now();
    with_ranks_at(root, GetParam(), 2, options, [&](Engine& engine, Member rank) {
      EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(tests::kSanitized ? 60 : 25));
      std::vector<float> values = contribution(5000, rank, 0);
      ASSERT_TRUE(engine.add_memory(values.data(), values.size() * sizeof(float)));
      const auto seconds = engine.all_reduce(values.data(), values.size(), DataType::kFloat32)->wait();
      ASSERT_TRUE(seconds) << seconds.error().message;
      EXPECT_EQ(values, sum_of_all(5000, 2, 0));
      EXPECT_EQ(engine.helpers(), 1U);
    });
    kill(child, SIGKILL);
    tests::end_of(child);
    EXPECT_EQ(tests::end_of(other), 0) << "the helper that is left";
  }
}

// What the helper waits for is a rank: nobody takes it for dead.
TEST_P(HelpersOver, ASlowRankCostsNoHelper) {
  Cluster cluster(GetParam(), 2, 1);
  EngineOptions options;
  options.plan = Plan::kSharded;
  cluster.each_rank(options, [&](Engine& engine, Member rank) {
    std::vector<float> values(1000, 1.0F);
    ASSERT_TRUE(engine.add_memory(values.data(), values.size() * sizeof(float)));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    const auto seconds = engine.all_reduce(values.data(), values.size(), DataType::kFloat32)->wait();
    ASSERT_TRUE(seconds) << seconds.error().message;
    EXPECT_EQ(engine.helpers(), 1U);
  });
  EXPECT_THAT(cluster.ends(), testing::ElementsAre(kEnded));
}

TEST_P(HelpersOver, WhereARankIsGoneTheHelpersEnd) {
  Cluster cluster(GetParam(), 2, 2);
  cluster.each_rank({}, [&](Engine& engine, Member rank) {
    if (rank == 1) engine.abort("it has enough");
    std::vector<float> values(1000, 1.0F);
    (void)engine.add_memory(values.data(), values.size() * sizeof(float));
    EXPECT_FALSE(engine.all_reduce(values.data(), values.size(), DataType::kFloat32)->wait());
  });
  EXPECT_THAT(cluster.ends(), testing::Each(kRankGone));
}

INSTANTIATE_TEST_SUITE_P(Transports, HelpersOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

TEST(Helpers, WrongOptionsSayWhatIsAllowed) {
  const auto transport = transport::conformance::tcp_under_test().front().create({});
  ASSERT_TRUE(transport);
  const std::atomic<bool> stop{false};
  const AllGather nobody = [](std::span<const std::byte>) -> Result<std::vector<std::byte>> {
    return fail(ErrorCode::kUnavailable, "nobody is there");
  };
  HelperOptions options;
  options.helper = 1;
  EXPECT_THAT(serve_as_helper(**transport, nobody, options, stop).error().message,
              HasSubstr("allowed: 1 to 64 helpers"));
  options = {};
  EXPECT_THAT(serve_as_helper(**transport, nobody, options, stop).error().message, HasSubstr("nobody is there"));
  EngineOptions engine;
  engine.helpers = 65;
  const auto made = Engine::create(**transport, nobody, engine);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("allowed: 0 to 64"));
}

}  // namespace
}  // namespace clustar::paraexpress
