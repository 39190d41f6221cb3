// The engine over real transports: exact sums by every plan and datatype, and what happens when a rank goes.
#include "paraexpress/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "paraexpress/engine/farewell.h"
#include "tests/paraexpress/engine_ranks.h"
#include "tests/sanitized.h"
#include "tests/unit/paraexpress/core/program_cluster.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

using bench::proxy::Bootstrap;
using program_test::Bytes;
using program_test::contribution;
using program_test::reduction_of;
using ::testing::HasSubstr;
using transport::conformance::TransportUnderTest;

class EngineOver : public testing::TestWithParam<TransportUnderTest> {};

TEST_P(EngineOver, EveryPlanAndDatatypeGivesTheExactSum) {
  for_each_plan({1U, 2U, 3U, 5U}, [&](std::uint32_t n, const EngineOptions& options, const Forest& forest) {
    struct Case {
      DataType type;
      Reduction reduction;
      std::size_t count;
      std::vector<std::vector<std::byte>> memory;  // by rank
    };
    std::vector<Case> cases;
    for (std::size_t type = 0; type < kDataTypes; ++type) {
      for (const std::size_t count : {1U, 1009U, 9001U}) {
        if (count != 1009 && type % 3 != 1) continue;
        Case one{static_cast<DataType>(type), type % 2 == 0 ? Reduction::kSum : Reduction::kMax, count, {}};
        for (Member rank = 0; rank < n; ++rank) one.memory.push_back(contribution(one.type, count, rank));
        cases.push_back(std::move(one));
      }
    }
    const std::vector<Case> before = cases;
    with_ranks(GetParam(), n, options, [&](Engine& engine, Member rank) {
      std::vector<std::unique_ptr<Operation>> started;
      for (Case& one : cases) {
        ASSERT_TRUE(engine.add_memory(one.memory[rank].data(), one.memory[rank].size()));
        started.push_back(engine.all_reduce(one.memory[rank].data(), one.count, one.type, one.reduction));
      }
      for (const auto& operation : started) {
        const auto seconds = operation->wait();
        ASSERT_TRUE(seconds) << seconds.error().message;
        EXPECT_TRUE(operation->done());
      }
    });
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Bytes expected = reduction_of(forest, cases[i].count, before[i].memory, cases[i].type, cases[i].reduction);
      for (Member rank = 0; rank < n; ++rank) {
        ASSERT_EQ(cases[i].memory[rank], expected) << name_of(cases[i].type) << " count " << cases[i].count;
      }
    }
  });
}

TEST_P(EngineOver, AnAllGatherBringsEachBlockAndMegabytesArriveWhole) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::size_t kBlock = 700'001;
  with_ranks(GetParam(), kRanks, {}, [&](Engine& engine, Member rank) {
    std::vector<std::byte> blocks(kRanks * kBlock);
    std::fill_n(blocks.begin() + rank * kBlock, kBlock, static_cast<std::byte>(rank + 1));
    ASSERT_TRUE(engine.add_memory(blocks.data(), blocks.size()));
    const auto seconds = engine.all_gather(blocks.data(), kBlock)->wait();
    ASSERT_TRUE(seconds) << seconds.error().message;
    for (std::size_t i = 0; i < blocks.size(); i += 997) ASSERT_EQ(blocks[i], static_cast<std::byte>(i / kBlock + 1));
    std::vector<float> sums(1'500'000, static_cast<float>(rank + 1));
    ASSERT_TRUE(engine.add_memory(sums.data(), sums.size() * sizeof(float)));
    const auto reduced = engine.all_reduce(sums.data(), sums.size(), DataType::kFloat32)->wait();
    ASSERT_TRUE(reduced) << reduced.error().message;
    EXPECT_TRUE(std::ranges::all_of(sums, [](float sum) { return sum == 6.0F; }));
    EXPECT_GT(engine.traffic().bytes_sent, sums.size() * sizeof(float));
  });
}

TEST_P(EngineOver, AfterProbingAllRanksHaveTheSameMapAndSum) {
  constexpr std::uint32_t kRanks = 5;
  EngineOptions options;
  options.regions = kProbeRegions;
  std::vector<std::string> maps(kRanks);
  with_ranks(GetParam(), kRanks, options, [&](Engine& engine, Member rank) {
    maps[rank] = engine.regions();
    EXPECT_NE(engine.regions_found().find("region"), std::string::npos) << engine.regions_found();
    std::vector<float> sums(50'000, static_cast<float>(rank + 1));
    ASSERT_TRUE(engine.add_memory(sums.data(), sums.size() * sizeof(float)));
    const auto seconds = engine.all_reduce(sums.data(), sums.size(), DataType::kFloat32)->wait();
    ASSERT_TRUE(seconds) << seconds.error().message;
    EXPECT_TRUE(std::ranges::all_of(sums, [](float sum) { return sum == 15.0F; }));
  });
  EXPECT_TRUE(parse_region_map(maps[0], kRanks, 0)) << maps[0];
  for (const std::string& map : maps) EXPECT_EQ(map, maps[0]);
}

// Connections have limits of what they can tell apart.
TEST_P(EngineOver, ThousandsOfOperationsOfManyKindsStayExact) {
  constexpr int kOperations = 6000;
  with_ranks(GetParam(), 2, {}, [&](Engine& engine, Member rank) {
    std::vector<std::int64_t> values(64);
    ASSERT_TRUE(engine.add_memory(values.data(), values.size() * sizeof(std::int64_t)));
    for (int i = 0; i < kOperations; ++i) {
      const std::size_t count = 1 + static_cast<std::size_t>(i % 5);
      std::fill_n(values.begin(), count, static_cast<std::int64_t>(rank) + 1);
      const bool sums = i % 3 != 0;
      const auto operation =
          i % 7 == 0 ? engine.broadcast(values.data(), count * sizeof(std::int64_t), i % 2 == 0 ? 1 : 0)
                     : engine.all_reduce(values.data(), count, i % 4 == 0 ? DataType::kUint64 : DataType::kInt64,
                                         sums ? Reduction::kSum : Reduction::kMax);
      const auto seconds = operation->wait();
      ASSERT_TRUE(seconds) << i << ": " << seconds.error().message;
      const std::int64_t expected = i % 7 == 0 ? (i % 2 == 0 ? 2 : 1) : sums ? 3 : 2;
      ASSERT_EQ(values[count - 1], expected) << i;
    }
  });
}

TEST_P(EngineOver, AbortFailsAllRanksAndNamesWhoGaveUp) {
  constexpr std::uint32_t kRanks = 3;
  with_ranks(GetParam(), kRanks, {}, [&](Engine& engine, Member rank) {
    std::vector<float> sums(100'000);
    ASSERT_TRUE(engine.add_memory(sums.data(), sums.size() * sizeof(float)));
    if (rank == 1) {
      engine.abort("its loss is not a number");
      const auto after = engine.all_reduce(sums.data(), sums.size(), DataType::kFloat32)->wait();
      ASSERT_FALSE(after);
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = engine.all_reduce(sums.data(), sums.size(), DataType::kFloat32)->wait();
    ASSERT_FALSE(seconds);
    EXPECT_THAT(seconds.error().message, HasSubstr("rank 1: its loss is not a number"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(tests::kSanitized ? 20 : 3));
  });
}

TEST_P(EngineOver, DifferentOperationsAreAnErrorAndNoHang) {
  EngineOptions options;
  options.plan = Plan::kDirect;
  options.stall = std::chrono::seconds(2);
  with_ranks(GetParam(), 2, options, [&](Engine& engine, Member rank) {
    std::vector<float> sums(5000);
    ASSERT_TRUE(engine.add_memory(sums.data(), sums.size() * sizeof(float)));
    const auto seconds = engine.all_reduce(sums.data(), rank == 0 ? 5000 : 400, DataType::kFloat32)->wait();
    ASSERT_FALSE(seconds);
    EXPECT_THAT(seconds.error().message, HasSubstr("rank "));
  });
}

// Each rank in a process: all-reduces until one fails, and what its error says, one line per rank. The victim gets the
// signal before its operation `lives`.
std::string what_survivors_say(const TransportUnderTest& which, const EngineOptions& common, Member victim, int lives,
                               int signal) {
  const auto root = Bootstrap::pick_loopback_root();
  std::array<int, 2> said{};
  if (!root || pipe(said.data()) != 0) return "no pipe or port";
  std::vector<pid_t> children;
  for (Member rank = 0; rank < common.ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    close(said[0]);
    EngineOptions options = common;
    options.rank = rank;
    auto one = Rank::join(which, *root, options);
    if (!one) _exit(2);
    std::vector<float> sums(200'000);
    if (!one->engine->add_memory(sums.data(), sums.size() * sizeof(float))) _exit(3);
    for (int i = 0;; ++i) {
      if (rank == victim && i == lives) {
        close(said[1]);
        (void)raise(signal);
      }
      const auto begin = std::chrono::steady_clock::now();
      const auto seconds = one->engine->all_reduce(sums.data(), sums.size(), DataType::kFloat32)->wait();
      if (seconds) continue;
      const bool soon = std::chrono::steady_clock::now() - begin < std::chrono::seconds(tests::kSanitized ? 20 : 3);
      // The memory is its owner's again.
      const std::vector<float> before = sums;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::string line = std::string(soon ? "soon " : "late ") + (before == sums ? "whole " : "written ") +
                               seconds.error().message + "\n";
      if (write(said[1], line.data(), line.size()) < 0) _exit(4);
      one->engine->close();
      _exit(0);
    }
  }
  close(said[1]);
  std::string text;
  for (char c; read(said[0], &c, 1) == 1;) text += c;
  close(said[0]);
  kill(children[victim], SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return text;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// A killed process: each of the others says within 3 s who it was.
TEST_P(EngineOver, AKilledRankIsNamedByAllOthers) {
  for (const Plan plan : {Plan::kRing, Plan::kDirect, Plan::kDoubleTree}) {
    EngineOptions options;
    options.ranks = 4;
    options.plan = plan;
    const std::string text = what_survivors_say(GetParam(), options, 2, 20, SIGKILL);
    EXPECT_EQ(count_of(text, "soon whole rank 2: "), options.ranks - 1) << to_string(plan) << "\n" << text;
  }
}

// A stopped process is named, though it is no neighbour in the plan.
TEST_P(EngineOver, AStoppedRankIsNamedByAllOthers) {
  for (const Plan plan : {Plan::kRing, Plan::kServer, Plan::kDoubleTree}) {
    EngineOptions options;
    options.ranks = 5;
    options.plan = plan;
    // So long may connecting take, too.
    options.stall = std::chrono::seconds(tests::kSanitized ? 4 : 1);
    const std::string text = what_survivors_say(GetParam(), options, 2, 5, SIGSTOP);
    EXPECT_EQ(count_of(text, " whole rank 2: it does not answer"), options.ranks - 1) << to_string(plan) << "\n"
                                                                                      << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

TEST(Engine, WrongOptionsSayWhatIsAllowed) {
  const auto transport = transport::conformance::tcp_under_test().front().create({});
  ASSERT_TRUE(transport);
  const AllGather alone = [](std::span<const std::byte> mine) {
    return Result<std::vector<std::byte>>(std::vector<std::byte>(mine.begin(), mine.end()));
  };
  const auto error = [&](const EngineOptions& options) {
    const auto engine = Engine::create(**transport, alone, options);
    return engine ? std::string() : engine.error().message;
  };
  EngineOptions options;
  EXPECT_EQ(error(options), "");
  options.rank = 1;
  EXPECT_THAT(error(options), HasSubstr("allowed: 1 to 256"));
  options = {};
  options.chunk_bytes = 1;
  EXPECT_THAT(error(options), HasSubstr("allowed: 4096"));
  options = {};
  options.ranks = 4;
  options.plan = Plan::kSharded;
  EXPECT_THAT(error(options), HasSubstr("allowed here: direct"));
  options.plan = Plan::kHierarchical;
  EXPECT_THAT(error(options), HasSubstr("region map"));
  options.regions = "x ranks=0-2\n";
  EXPECT_THAT(error(options), HasSubstr("region map"));
}

TEST(Farewells, AreReadBackAndNonsenseIsNone) {
  constexpr std::uint32_t kRanks = 9;
  const auto done = parse_farewell(encode_farewell({}), kRanks);
  ASSERT_TRUE(done);
  EXPECT_FALSE(done->blame);
  const std::string text = "rank 7: " + std::string(1000, 'x');
  const auto failed = parse_farewell(encode_farewell(Blame{7, {ErrorCode::kRemote, text}}), kRanks);
  ASSERT_TRUE(failed && failed->blame);
  EXPECT_EQ(failed->blame->guilty, 7U);
  EXPECT_EQ(failed->blame->error.message, text.substr(0, failed->blame->error.message.size()));
  EXPECT_FALSE(parse_farewell(encode_farewell(Blame{kRanks, {}}), kRanks)) << "no such rank";
  const auto stalled = parse_farewell(encode_farewell(Blame{kNobody, {ErrorCode::kRemote, "nothing"}}), kRanks);
  ASSERT_TRUE(stalled && stalled->blame);
  EXPECT_EQ(stalled->blame->guilty, kNobody);
  Rng rng(5);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    FarewellBytes bytes = encode_farewell(Blame{3, {ErrorCode::kRemote, "a\x1b[31m"}});
    for (std::uint64_t changes = rng.below(4); changes > 0; --changes) {
      bytes[rng.below(i % 2 == 0 ? 16 : kFarewellBytes)] = static_cast<std::byte>(rng.below(256));
    }
    const auto farewell = parse_farewell(bytes, kRanks);
    if (!farewell || !farewell->blame) continue;
    ++read;
    EXPECT_TRUE(farewell->blame->guilty < kRanks || farewell->blame->guilty == kNobody);
    EXPECT_LE(farewell->blame->error.message.size(), kFarewellBytes);
    EXPECT_EQ(farewell->blame->error.message.find('\x1b'), std::string::npos);
  }
  EXPECT_GT(read, 5000);
}

// A rank that refuses an operation and goes on would give the others its next one.
TEST(Engine, MemoryThatWasNotAddedFailsAllRanks) {
  for (const bool too_many : {false, true}) {
    with_ranks(transport::conformance::tcp_under_test().front(), 2, {}, [&](Engine& engine, Member rank) {
      std::vector<double> added(10), other(10);
      ASSERT_TRUE(engine.add_memory(added.data(), added.size() * sizeof(double)));
      EXPECT_FALSE(engine.add_memory(nullptr, 8));
      const std::size_t count = rank == 1 && too_many ? (std::size_t{1} << 61) + 8 : 8;
      double* const memory = rank == 1 && !too_many ? other.data() : added.data();
      for (int i = 0; i < 2; ++i) {
        const auto seconds = engine.all_reduce(memory, i == 0 ? count : 8, DataType::kFloat64)->wait();
        ASSERT_FALSE(seconds);
        EXPECT_THAT(seconds.error().message, HasSubstr("rank 1: memory that was not added"));
      }
      EXPECT_FALSE(engine.add_memory(other.data(), 8));
    });
  }
}

TEST(Engine, OtherReductionsOfEqualSizeAreAnError) {
  EngineOptions options;
  options.stall = std::chrono::seconds(1);
  with_ranks(transport::conformance::tcp_under_test().front(), 2, options, [&](Engine& engine, Member rank) {
    std::vector<float> memory(100);
    ASSERT_TRUE(engine.add_memory(memory.data(), memory.size() * sizeof(float)));
    const auto seconds =
        engine
            .all_reduce(memory.data(), memory.size(), DataType::kFloat32, rank == 0 ? Reduction::kSum : Reduction::kMax)
            ->wait();
    ASSERT_FALSE(seconds);
    EXPECT_THAT(seconds.error().message, HasSubstr("the same operations"));
  });
}

}  // namespace
}  // namespace clustar::paraexpress
