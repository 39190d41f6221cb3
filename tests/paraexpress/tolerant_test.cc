// The tolerant contract over real transports: exact where all are in time, late and lost contributions kept, and what
// happens when a rank goes.
#include "paraexpress/tolerant/tolerant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/own_process.h"
#include "tests/paraexpress/engine_ranks.h"
#include "tests/sanitized.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress::tolerant {
namespace {

using bench::proxy::Bootstrap;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using transport::conformance::TransportUnderTest;

// One rank, with all that it needs.
struct Seat {
  std::unique_ptr<Bootstrap> bootstrap{};
  std::unique_ptr<transport::Transport> transport{};
  std::unique_ptr<Group> group{};

  static Result<Seat> join(const TransportUnderTest& which, const std::string& root, GroupOptions options) {
    Seat seat;
    auto bootstrap = Bootstrap::join(
        {.rank = static_cast<int>(options.rank), .size = static_cast<int>(options.ranks), .root = root});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    seat.bootstrap = std::move(*bootstrap);
    auto transport = which.create({});
    if (!transport) return tl::unexpected(transport.error());
    seat.transport = std::move(*transport);
    options.channel.comm_id = 0x70;
    auto group = Group::create(*seat.transport, through(*seat.bootstrap), options);
    if (!group) return tl::unexpected(group.error());
    seat.group = std::move(*group);
    return seat;
  }
};

void with_group(const TransportUnderTest& which, const GroupOptions& common,
                const std::function<void(Group&, Member)>& body) {
  const auto root = Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  std::vector<std::thread> threads;
  for (Member rank = 0; rank < common.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = common;
      options.rank = rank;
      auto seat = Seat::join(which, *root, options);
      ASSERT_TRUE(seat) << seat.error().message;
      body(*seat->group, rank);
      seat->group->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TransportUnderTest faulty() {
  for (const TransportUnderTest& one : transport::conformance::mlt_elsewhere_under_test()) {
    if (one.name == "mlt_udp_faulty") return one;
  }
  return {};
}

// Whole numbers, so that no order of additions rounds.
void draw(std::vector<float>& values, Rng& rng) {
  for (float& one : values) one = static_cast<float>(rng.below(17)) - 8;
}

// What all gave, were told and keep, of one bucket.
struct Books {
  std::mutex mutex{};
  std::vector<double> given, kept;
  std::vector<std::vector<float>> results;

  explicit Books(std::size_t count) : given(count), kept(count) {}
  void gave(const std::vector<float>& values) {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < values.size(); ++i) given[i] += static_cast<double>(values[i]);
  }
  void got(std::uint64_t round, const std::vector<float>& values) {
    const std::lock_guard lock(mutex);
    if (results.size() <= round) results.push_back(values);
    ASSERT_TRUE(results[round] == values) << "ranks have different results of round " << round;
  }
  void keeps(const Residual& residual) {
    const std::lock_guard lock(mutex);
    std::vector<float> values(residual.elements.size() / sizeof(float));
    std::memcpy(values.data(), residual.elements.data(), residual.elements.size());
    for (std::size_t i = 0; i < values.size(); ++i) kept[i] += static_cast<double>(values[i]);
  }
  std::vector<double> difference() const {
    std::vector<double> sum(given.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = kept[i] - given[i];
      for (const auto& result : results) sum[i] += static_cast<double>(result[i]);
    }
    return sum;
  }
};

class TolerantOver : public testing::TestWithParam<TransportUnderTest> {};

TEST_P(TolerantOver, WhoIsInTimeGetsTheExactSum) {
  for (const std::uint32_t ranks : {1U, 2U, 5U}) {
    GroupOptions options;
    options.ranks = ranks;
    options.buckets = 3;
    options.tolerance.staleness = 0;
    with_group(GetParam(), options, [&](Group& group, Member rank) {
      std::vector<float> small(3, static_cast<float>(rank + 1)), large(300'001, static_cast<float>(rank + 1));
      std::vector<double> wide(1000, rank + 1);
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      float factor = sum;
      for (int round = 0; round < 3; ++round) {
        const auto first = group.all_reduce(2, large.data(), large.size(), DataType::kFloat32);
        const auto second = group.all_reduce(0, small.data(), small.size(), DataType::kFloat32);
        const auto third = group.all_reduce(1, wide.data(), wide.size(), DataType::kFloat64);
        for (const auto* one : {&first, &second, &third}) {
          const auto outcome = (*one)->wait();
          ASSERT_TRUE(outcome) << outcome.error().message;
          EXPECT_EQ(outcome->round, static_cast<std::uint64_t>(round));
          EXPECT_EQ(outcome->kept, 0);
          EXPECT_EQ(outcome->gradients, ranks);
        }
        EXPECT_THAT(small, Each(factor));
        EXPECT_TRUE(std::ranges::all_of(large, [&](float one) { return one == factor; }));
        EXPECT_THAT(wide, Each(static_cast<double>(factor)));
        factor *= static_cast<float>(ranks);
      }
    });
  }
}

TEST_P(TolerantOver, ARankThatComesLateMayStillRestore) {
  GroupOptions options;
  options.ranks = 2;
  options.tolerance = {.quorum = 1, .deadline = {}, .staleness = 4, .scales = false};
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    std::vector<float> values(100, 1.0F);
    if (rank == 1) {
      const auto until = steady_clock::now() + std::chrono::seconds(20);
      while (group.should_compute() && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
      std::vector<std::byte> two(100 * sizeof(float));
      for (std::size_t i = 0; i < 100; ++i) std::memcpy(two.data() + i * sizeof(float), &values[i], sizeof(float));
      ASSERT_TRUE(group.restore(0, {100, DataType::kFloat32, 0, {1, 1}, two}));
    }
    const auto round = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32);
    // Its own part may be in its round or not; what was restored is in a sum or kept, with what it gave.
    const auto outcome = round->wait();
    ASSERT_TRUE(outcome) << outcome.error().message;
    const auto residual = group.residual(0);
    ASSERT_TRUE(residual);
    float kept = 0;
    std::memcpy(&kept, residual->elements.data(), sizeof kept);
    EXPECT_EQ(kept, rank == 1 ? 2.0F : 0.0F);
  });
}

TEST_P(TolerantOver, WhatIsUnderWayCannotBeSaved) {
  GroupOptions options;
  options.ranks = 2;
  options.tolerance.quorum = 2;
  std::atomic<bool> looked{false};
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    std::vector<float> values(100, 1.0F);
    if (rank == 1) looked.wait(false);
    const auto round = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32);
    if (rank == 0) {
      const auto residual = group.residual(0);
      looked = true;
      looked.notify_all();
      ASSERT_FALSE(residual);
      EXPECT_THAT(residual.error().message, HasSubstr("is open: wait for it"));
    }
    ASSERT_TRUE(round->wait());
    EXPECT_TRUE(group.residual(0));
  });
}

// A rank that sleeps every so often, and catches up as the trainer does.
TEST_P(TolerantOver, ContributionsAndResidualsAreTheSumWhereARankIsLate) {
  constexpr std::size_t kCount = 200'000;
  constexpr int kRounds = 40;
  GroupOptions options;
  options.ranks = 4;
  options.tolerance = {.quorum = 2, .deadline = milliseconds(2), .staleness = 6, .scales = false};
  Books books(kCount);
  std::atomic<std::uint64_t> kept{0}, skipped{0};
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    Rng rng(rank + 1);
    std::vector<float> values(kCount);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const bool gives = group.should_compute();
      if (gives && rank == 3) std::this_thread::sleep_for(milliseconds(30));
      draw(values, rng);
      if (gives) books.gave(values);
      if (!gives) ++skipped;
      const auto outcome = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32, gives)->wait();
      ASSERT_TRUE(outcome) << outcome.error().message;
      books.got(round, values);
      kept += outcome->kept;
    }
    const auto residual = group.residual(0);
    ASSERT_TRUE(residual) << residual.error().message;
    books.keeps(*residual);
  });
  const auto difference = books.difference();
  EXPECT_TRUE(std::ranges::all_of(difference, [](double one) { return one == 0; }));
  EXPECT_GT(kept, kCount) << "nobody was late";
  EXPECT_GT(skipped, 5);
}

TEST_P(TolerantOver, WhatWasKeptIsGivenAfterARestart) {
  GroupOptions options;
  options.ranks = 2;
  options.tolerance = {.quorum = 1, .deadline = {}, .staleness = 4, .scales = false};
  std::vector<Residual> kept(2);
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    std::vector<float> values(1000, static_cast<float>(rank + 1));
    if (rank == 1) {
      const auto until = steady_clock::now() + std::chrono::seconds(20);
      while (group.should_compute() && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    }
    const auto outcome = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait();
    ASSERT_TRUE(outcome) << outcome.error().message;
    const auto residual = group.residual(0);
    ASSERT_TRUE(residual);
    kept[rank] = *residual;
    std::vector<float> late(1000);
    std::memcpy(late.data(), kept[rank].elements.data(), kept[rank].elements.size());
    // Its own part may have closed before or after it gave.
    EXPECT_EQ(late[0], rank == 0 ? 0.0F : 2.0F);
  });
  options.tolerance.staleness = 0;
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    ASSERT_TRUE(group.restore(0, kept[rank]));
    std::vector<float> values(1000, 10.0F);
    const auto outcome = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(values[0], 22.0F);
    EXPECT_EQ(outcome->kept, 0);
    EXPECT_FALSE(group.restore(0, kept[rank])) << "after its first round";
  });
}

// Faulty packets are for one process: its checksums know no other.
class TolerantProcessesOver : public TolerantOver {};

TEST_P(TolerantProcessesOver, AKilledRankIsNamedByAllOthersWithinThreeSeconds) {
  const auto root = Bootstrap::pick_loopback_root();
  std::array<int, 2> said{};
  ASSERT_TRUE(root && pipe(said.data()) == 0);
  constexpr std::uint32_t kRanks = 3;
  std::vector<pid_t> children;
  for (Member rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    close(said[0]);
    GroupOptions options;
    options.rank = rank;
    options.ranks = kRanks;
    auto seat = Seat::join(GetParam(), *root, options);
    if (!seat) _exit(2);
    std::vector<float> values(200'000);
    for (int round = 0;; ++round) {
      if (rank == 1 && round == 20) {
        close(said[1]);
        (void)raise(SIGKILL);
      }
      const auto begin = steady_clock::now();
      const auto outcome = seat->group->all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait();
      if (outcome) continue;
      const bool soon = steady_clock::now() - begin < std::chrono::seconds(tests::kSanitized ? 20 : 3);
      const std::string line = std::string(soon ? "soon " : "late ") + outcome.error().message + "\n";
      if (write(said[1], line.data(), line.size()) < 0) _exit(4);
      seat->group->close();
      _exit(0);
    }
  }
  close(said[1]);
  std::string text;
  for (char c; read(said[0], &c, 1) == 1;) text += c;
  close(said[0]);
  for (Member rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, rank == 1 ? SIGKILL : 0) << "rank " << rank;
  }
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
  EXPECT_THAT(text, HasSubstr("soon rank 1: "));
  EXPECT_EQ(text.find("late "), std::string::npos) << text;
}

TEST_P(TolerantOver, AbortAndContradictionsFailAllRanksAndNameWhoItWas) {
  GroupOptions options;
  options.ranks = 3;
  options.buckets = 2;
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    std::vector<float> values(50'000);
    if (rank == 1) {
      group.abort("its loss is not a number");
      EXPECT_FALSE(group.all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait());
      return;
    }
    const auto outcome = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait();
    ASSERT_FALSE(outcome);
    EXPECT_THAT(outcome.error().message, HasSubstr("rank 1: its loss is not a number"));
  });
  with_group(GetParam(), options, [&](Group& group, Member rank) {
    std::vector<float> values(50'000);
    const std::size_t count = rank == 2 ? 40'000 : 50'000;
    const auto outcome = group.all_reduce(1, values.data(), count, DataType::kFloat32)->wait();
    ASSERT_FALSE(outcome);
    EXPECT_THAT(outcome.error().message, AllOf(HasSubstr("all ranks must be told the same"), HasSubstr("40000"),
                                               HasSubstr("50000"), HasSubstr("rank 2")));
  });
}

TEST_P(TolerantOver, ClosingWithOpenRoundsIsAnErrorForAllAndNothingIsLeftBehind) {
  GroupOptions options;
  options.ranks = 2;
  options.tolerance.quorum = 2;
  const auto once = [&] {
    std::atomic<bool> failed{false};
    with_group(GetParam(), options, [&](Group& group, Member rank) {
      std::vector<float> values(100'000);
      // The other may have failed already.
      (void)group.all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait();
      if (rank == 0) failed.wait(false);
      const auto open = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32);
      if (rank == 1) {
        const auto two = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32);
        EXPECT_FALSE(two->wait());
        failed = true;
        failed.notify_all();
      }
      ASSERT_FALSE(open->wait());
    });
  };
  once();
  const auto descriptors = tests::open_descriptors();
  const auto threads = tests::running_threads();
  for (int i = 0; i < 3; ++i) once();
  EXPECT_LE(tests::open_descriptors(), descriptors);
  EXPECT_LE(tests::threads_left(threads), threads);
}

INSTANTIATE_TEST_SUITE_P(Transports, TolerantOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front(), faulty()),
                         [](const auto& which) { return which.param.name; });

INSTANTIATE_TEST_SUITE_P(Transports, TolerantProcessesOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

// Bytes that the network loses, and MLT may leave lost: within the bound, and kept by who sent them.
TEST(TolerantLoss, LostContributionsStayWithTheirSendersWithinTheBound) {
  constexpr std::size_t kCount = 4 << 20;
  constexpr std::uint64_t kRounds = 8;
  GroupOptions options;
  options.ranks = 3;
  options.tolerance = {
      .quorum = 2, .deadline = std::chrono::seconds(20), .staleness = 4, .tolerance_ppm = 10'000, .scales = false};
  Books books(kCount);
  std::atomic<std::uint64_t> kept{0}, given{0};
  with_group(faulty(), options, [&](Group& group, Member rank) {
    Rng rng(rank + 1);
    std::vector<float> values(kCount);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      draw(values, rng);
      books.gave(values);
      const auto outcome = group.all_reduce(0, values.data(), values.size(), DataType::kFloat32)->wait();
      ASSERT_TRUE(outcome) << outcome.error().message;
      books.got(round, values);
      kept += outcome->kept;
      given += outcome->given;
    }
    const auto residual = group.residual(0);
    ASSERT_TRUE(residual);
    books.keeps(*residual);
  });
  const auto difference = books.difference();
  EXPECT_TRUE(std::ranges::all_of(difference, [](double one) { return one == 0; }));
  EXPECT_GT(kept, 0) << "nothing was lost";
  EXPECT_LE(static_cast<double>(kept), 0.01 * static_cast<double>(given));
}

TEST(TolerantGroup, WrongOptionsSayWhatIsAllowed) {
  const auto transport = transport::conformance::tcp_under_test().front().create({});
  ASSERT_TRUE(transport);
  const AllGather alone = [](std::span<const std::byte> mine) {
    return Result<std::vector<std::byte>>(std::vector<std::byte>(mine.begin(), mine.end()));
  };
  const auto error = [&](const std::function<void(GroupOptions&)>& change) {
    GroupOptions options;
    change(options);
    const auto group = Group::create(**transport, alone, options);
    return group ? std::string() : group.error().message;
  };
  EXPECT_EQ(error([](GroupOptions&) {}), "");
  EXPECT_THAT(error([](GroupOptions& options) { options.rank = 1; }), HasSubstr("allowed: 1 to 256"));
  EXPECT_THAT(error([](GroupOptions& options) { options.buckets = 0; }), HasSubstr("allowed: 1 to 4096"));
  EXPECT_THAT(error([](GroupOptions& options) { options.tolerance.quorum = 2; }), HasSubstr("allowed: 1 to 1"));
  EXPECT_THAT(error([](GroupOptions& options) { options.tolerance.staleness = 1025; }),
              HasSubstr("allowed: 0 to 1024"));
  EXPECT_THAT(error([](GroupOptions& options) { options.tolerance.tolerance_ppm = 200'000; }),
              HasSubstr("allowed: 0 to 100000"));
  EXPECT_THAT(error([](GroupOptions& options) { options.tolerance.deadline = Duration(-1); }),
              HasSubstr("allowed: 0 to 3600 s"));
}

TEST(TolerantGroup, RanksThatWereToldDifferentThingsDoNotConnect) {
  const auto root = Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  std::vector<std::thread> threads;
  for (Member rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options;
      options.rank = rank;
      options.ranks = 2;
      options.tolerance.staleness = 3 + rank;
      const auto seat = Seat::join(transport::conformance::tcp_under_test().front(), *root, options);
      ASSERT_FALSE(seat);
      EXPECT_THAT(seat.error().message, HasSubstr("staleness: rank"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TolerantGroup, WrongRoundsAreRefusedAndTheGroupLives) {
  with_group(transport::conformance::tcp_under_test().front(), {.ranks = 2}, [&](Group& group, Member) {
    std::vector<float> values(10, 1.0F);
    const auto error = [&](std::uint32_t bucket, void* elements, std::size_t count, DataType type) {
      const auto outcome = group.all_reduce(bucket, elements, count, type)->wait();
      return outcome ? std::string() : outcome.error().message;
    };
    EXPECT_THAT(error(1, values.data(), 10, DataType::kFloat32), HasSubstr("allowed: 0 to 0"));
    EXPECT_THAT(error(0, nullptr, 10, DataType::kFloat32), HasSubstr("allowed: 1 to 2^40"));
    EXPECT_THAT(error(0, values.data(), 0, DataType::kFloat32), HasSubstr("allowed: 1 to 2^40"));
    EXPECT_THAT(error(0, values.data(), std::size_t{1} << 39, DataType::kFloat64),
                HasSubstr("allowed: 17179869184 bytes"));
    EXPECT_THAT(error(0, values.data(), 10, DataType::kInt32), HasSubstr("allowed: float32, float64"));
    EXPECT_EQ(error(0, values.data(), 10, DataType::kFloat32), "");
    EXPECT_THAT(values, Each(2.0F));
  });
}

}  // namespace
}  // namespace clustar::paraexpress::tolerant
