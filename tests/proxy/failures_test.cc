// What goes wrong ends in a named error, in time, with nothing left open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "tests/own_process.h"
#include "tests/proxy/collectives.h"
#include "tests/proxy/plugins.h"
#include "tests/proxy/ranks.h"

namespace clustar::bench::proxy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::open_descriptors;
using tests::running_threads;
using tests::threads_left;

class MemoryFailures : public ::testing::Test {
 protected:
  void SetUp() override { memory_plugin().reset(); }
  void TearDown() override {
    EXPECT_STREQ(memory_plugin().violations(), "");
    for (const char* what : {"comms", "requests", "listeners", "contexts"}) {
      EXPECT_EQ(memory_plugin().count(what), 0) << what;
    }
  }
  const std::unique_ptr<NetPlugin> plugin_ = open_plugin(PROXY_TEST_MEMORY_PLUGIN);
};

TEST_F(MemoryFailures, AFailedSetUpIsNamedToEveryRank) {
  for (const char* call : {"init", "devices", "getProperties", "listen", "connect", "accept", "regMr", "closeListen"}) {
    memory_plugin().reset();
    memory_plugin().fail(call, 2, nccl_abi::kSystemError);
    run_ranks(3, [&](Bootstrap& bootstrap) {
      CommunicatorOptions options;
      options.connect_timeout = milliseconds(500);
      const auto comm = Communicator::create(*plugin_, bootstrap, options);
      ASSERT_FALSE(comm) << call;
      EXPECT_THAT(comm.error().message,
                  ::testing::AnyOf(AllOf(HasSubstr("rank "), HasSubstr(call)), HasSubstr("not connected in time")));
    });
  }
}

TEST_F(MemoryFailures, ConnectionsThatNeverComeAreNamed) {
  memory_plugin().set("never_connect", 1);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    CommunicatorOptions options;
    options.connect_timeout = milliseconds(100);
    const auto comm = Communicator::create(*plugin_, bootstrap, options);
    ASSERT_FALSE(comm);
    EXPECT_THAT(comm.error().message, HasSubstr("rank 0: not connected in time: still open are connect to rank 1"));
  });
}

TEST_F(MemoryFailures, RanksThatDisagree) {
  run_ranks(3, [&](Bootstrap& bootstrap) {
    CommunicatorOptions options;
    options.channels = bootstrap.rank() == 1 ? 2 : 1;
    const auto comm = Communicator::create(*plugin_, bootstrap, options);
    ASSERT_FALSE(comm);
    EXPECT_EQ(comm.error().code, ErrorCode::kInvalidUsage);
  });
  run_ranks(2, [&](Bootstrap& bootstrap) {
    CommunicatorOptions options;
    options.device = bootstrap.rank() == 1 ? 9 : 0;
    const auto comm = Communicator::create(*plugin_, bootstrap, options);
    ASSERT_FALSE(comm);
    EXPECT_THAT(comm.error().message, HasSubstr("rank 1: net device 9 does not exist; the plugin has 0 to 1"));
  });
}

// Runs all-reduces on `size` ranks until each got an error.
void reduce_until_error(NetPlugin& plugin, int size, const CommunicatorOptions& options,
                        const std::function<void(const Error&)>& check) {
  run_ranks(size, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(plugin, bootstrap, options);
    ASSERT_TRUE(comm) << comm.error().message;
    std::vector<float> data(100'000, 1.0f);
    for (int i = 0; i < 10'000; ++i) {
      const auto stats = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kMax)->wait();
      if (stats) continue;
      check(stats.error());
      // Sticky: the next one fails at once.
      EXPECT_FALSE((*comm)->all_reduce(data.data(), 1, DataType::kFloat32, ReduceOp::kMax)->wait());
      return;
    }
    FAIL() << "no error";
  });
}

TEST_F(MemoryFailures, AFailedTransferNamesCallResultAndWarning) {
  for (const char* call : {"isend", "irecv", "test", "iflush"}) {
    memory_plugin().reset();
    memory_plugin().fail(call, 200, nccl_abi::kSystemError);
    CommunicatorOptions options;
    options.force_flush = true;
    std::atomic<int> named{0};
    reduce_until_error(*plugin_, 3, options, [&](const Error& error) {
      if (error.message.find(call) == std::string::npos) return;  // a neighbour's end may be noticed first
      EXPECT_THAT(error.message, AllOf(HasSubstr("returned ncclSystemError (2)"), HasSubstr("was told to fail")));
      ++named;
    });
    EXPECT_GT(named, 0) << call;
  }
}

TEST_F(MemoryFailures, BytesThatDoNotArriveAreNoticed) {
  CommunicatorOptions options;
  options.stall_timeout = milliseconds(300);
  memory_plugin().set("short_receive", 1);
  std::atomic<int> noticed{0};
  reduce_until_error(*plugin_, 2, options, [&](const Error& error) {
    noticed += error.message.find("completed with") != std::string::npos ? 1 : 0;
  });
  EXPECT_GT(noticed.exchange(0), 0);
  memory_plugin().reset();
  memory_plugin().set("lose_flags", 1);
  options.protocol = Protocol::kLL;
  reduce_until_error(*plugin_, 2, options, [&](const Error& error) {
    noticed += error.message.find("lacks the flags") != std::string::npos ? 1 : 0;
  });
  EXPECT_GT(noticed, 0);
}

TEST_F(MemoryFailures, AStallIsAnErrorThatSaysWhere) {
  run_ranks(2, [&](Bootstrap& bootstrap) {
    CommunicatorOptions options;
    options.stall_timeout = milliseconds(150);
    auto comm = Communicator::create(*plugin_, bootstrap, options);
    ASSERT_TRUE(comm) << comm.error().message;
    std::vector<float> data(1000);
    if (bootstrap.rank() == 0) {
      const auto stats = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait();
      ASSERT_FALSE(stats);
      EXPECT_THAT(stats.error().message,
                  AllOf(HasSubstr("no transfer moved for 150 ms: all-reduce of 1000 elements, channel 0"),
                        HasSubstr("from rank 1 0 of 4 slices received")));
    }
    ASSERT_TRUE(bootstrap.barrier());
  });
}

class AnyPlugin : public ::testing::TestWithParam<TestedPlugin> {
 protected:
  void SetUp() override { memory_plugin().reset(); }
};
INSTANTIATE_TEST_SUITE_P(Plugins, AnyPlugin, ::testing::ValuesIn(tested_plugins()),
                         [](const auto& test) { return test.param.name; });

// Rank 0 is in the middle of collectives that the others never join.
TEST_P(AnyPlugin, AbortInFlight) {
  for (const bool by_close : {false, true}) {
    const auto plugin = open_plugin(GetParam().path);
    run_ranks(3, [&](Bootstrap& bootstrap) {
      CommunicatorOptions options;
      options.channels = 2;
      auto comm = Communicator::create(*plugin, bootstrap, options);
      ASSERT_TRUE(comm) << comm.error().message;
      std::vector<float> data(2'000'000);
      if (bootstrap.rank() == 0) {
        auto first = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
        auto second = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
        while ((*comm)->totals().idle_yields < 20) std::this_thread::yield();
        EXPECT_FALSE(first->done());
        if (by_close) {
          (*comm)->close();
        } else {
          (*comm)->abort();
        }
        const auto stats = first->wait();
        ASSERT_FALSE(stats);
        EXPECT_THAT(stats.error().message, HasSubstr(by_close ? "closed" : "aborted"));
        EXPECT_FALSE(second->wait());
        EXPECT_FALSE((*comm)->all_reduce(data.data(), 1, DataType::kFloat32, ReduceOp::kSum)->wait());
        comm->reset();
        EXPECT_TRUE(first->done());  // outlives the communicator
      }
      ASSERT_TRUE(bootstrap.barrier());
    });
  }
  EXPECT_STREQ(memory_plugin().violations(), "");
}

// The end of a communicator while its neighbours are in a collective.
TEST_P(AnyPlugin, APeerThatLeavesIsAnErrorInTime) {
  const auto plugin = open_plugin(GetParam().path);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    CommunicatorOptions options;
    options.stall_timeout = seconds(20);
    auto comm = Communicator::create(*plugin, bootstrap, options);
    ASSERT_TRUE(comm) << comm.error().message;
    check_all_reduce<float>(**comm, 1000, ReduceOp::kSum, options);
    if (bootstrap.rank() == 1) return;
    std::vector<float> data(1'000'000);
    const auto begin = steady_clock::now();
    const auto stats = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait();
    ASSERT_FALSE(stats);
    // Rank 2 may see the end of rank 0, which saw the end of rank 1.
    EXPECT_LT(steady_clock::now() - begin, seconds(15)) << stats.error().message;
    EXPECT_EQ(stats.error().code, ErrorCode::kRemote) << stats.error().message;
  });
}

TEST_P(AnyPlugin, NothingStaysOpen) {
  std::size_t descriptors = 0, threads = 0;
  for (int round = 0; round < 4; ++round) {
    {
      const auto plugin = open_plugin(GetParam().path);
      run_ranks(3, [&](Bootstrap& bootstrap) {
        CommunicatorOptions options;
        options.channels = 3;
        auto comm = Communicator::create(*plugin, bootstrap, options);
        ASSERT_TRUE(comm) << comm.error().message;
        check_all_reduce<float>(**comm, 100'000, ReduceOp::kSum, options);
        ASSERT_TRUE(bootstrap.barrier());
      });
    }
    // The first round may load what stays for good.
    if (round == 0) {
      descriptors = open_descriptors();
      threads = running_threads();
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_LE(threads_left(threads), threads);
  }
}

int die_after_some_steps(const std::string& path, const std::string& root) {
  Bootstrap::Options joining;
  joining.rank = 1;
  joining.size = 3;
  joining.root = root;
  auto bootstrap = Bootstrap::join(joining);
  auto plugin = NetPlugin::open(path);
  if (!bootstrap || !plugin) return 2;
  auto comm = Communicator::create(**plugin, **bootstrap, {});
  if (!comm) return 3;
  std::vector<float> data(1'000'000);
  for (int i = 0; i < 3; ++i) {
    if (!(*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait()) return 4;
  }
  return raise(SIGKILL);
}

TEST_P(AnyPlugin, AKilledProcessIsAnErrorInTime) {
  if (GetParam().name == "Memory") GTEST_SKIP() << "the memory plugin knows one process only; the others run this";
  const std::string root = *Bootstrap::pick_loopback_root();
  const pid_t child = fork();  // no other thread is alive here
  ASSERT_GE(child, 0);
  if (child == 0) _exit(die_after_some_steps(GetParam().path, root));
  const auto plugin = open_plugin(GetParam().path);
  std::vector<std::thread> ranks;
  for (const int rank : {0, 2}) {
    ranks.emplace_back([&, rank] {
      Bootstrap::Options joining;
      joining.rank = rank;
      joining.size = 3;
      joining.root = root;
      auto bootstrap = Bootstrap::join(joining);
      ASSERT_TRUE(bootstrap) << bootstrap.error().message;
      CommunicatorOptions options;
      options.stall_timeout = seconds(30);
      auto comm = Communicator::create(*plugin, **bootstrap, options);
      ASSERT_TRUE(comm) << comm.error().message;
      std::vector<float> data(1'000'000);
      auto last = steady_clock::now();
      for (int i = 0; i < 1000; ++i, last = steady_clock::now()) {
        const auto stats = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait();
        if (stats) continue;
        EXPECT_GE(i, 3);
        EXPECT_EQ(stats.error().code, ErrorCode::kRemote) << stats.error().message;
        EXPECT_LT(steady_clock::now() - last, seconds(15));
        return;
      }
      FAIL() << "no error";
    });
  }
  for (std::thread& rank : ranks) rank.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
}

}  // namespace
}  // namespace clustar::bench::proxy
