// The C API and its C++ face, through the library that users link.
#include <clustar/paraexpress.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clustar/paraexpress.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/child_ends.h"
#include "tests/sanitized.h"
#include "transport/rendezvous/bootstrap.h"
#include "transport/rendezvous/socket_io.h"

namespace clustar {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

clustarPxOptions_v1 options_of(int rank, int ranks, const char* root) {
  clustarPxOptions_v1 options{};
  options.size = sizeof options;
  options.rank = rank;
  options.ranks = ranks;
  options.root = root;
  return options;
}

// Rank 0 in this process, the others in children; gives how these ended.
std::vector<int> with_children(int ranks, const std::function<void(int rank, const char* root)>& body) {
  const auto root = rendezvous::Bootstrap::pick_loopback_root();
  if (!root) return {-100};
  std::vector<pid_t> children;
  for (int rank = 1; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    body(rank, root->c_str());
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  body(0, root->c_str());
  return tests::ends_of(children);
}

TEST(ParaexpressApi, EveryCollectiveThroughTheCppFace) {
  const auto ends = with_children(3, [](int rank, const char* root) {
    px::Communicator comm(options_of(rank, 3, root));
    std::vector<float> values(3000), blocks(3 * 70);
    comm.add_memory(values.data(), values.size() * sizeof(float));
    comm.add_memory(blocks.data(), blocks.size() * sizeof(float));
    const auto fill = [&] { std::fill(values.begin(), values.end(), static_cast<float>(rank + 1)); };
    fill();
    comm.all_reduce(values.data(), values.size()).wait();
    EXPECT_EQ(values, std::vector<float>(3000, 6));
    fill();
    comm.all_reduce(values.data(), values.size(), CLUSTARPX_MAX).wait();
    EXPECT_EQ(values, std::vector<float>(3000, 3));
    fill();
    comm.push(values.data(), values.size()).wait();
    comm.pull(values.data(), values.size()).wait();
    EXPECT_EQ(values, std::vector<float>(3000, 6));
    fill();
    comm.broadcast(values.data(), values.size() * sizeof(float), 2).wait();
    EXPECT_EQ(values, std::vector<float>(3000, 3));
    std::fill(blocks.begin(), blocks.end(), static_cast<float>(rank + 1));
    comm.reduce_scatter(blocks.data(), 70).wait();
    EXPECT_EQ(blocks[static_cast<std::size_t>(rank) * 70 + 69], 6);
    comm.all_gather(blocks.data(), 70 * sizeof(float)).wait();
    EXPECT_EQ(blocks, std::vector<float>(210, 6));
    auto last = comm.all_reduce(values.data(), 10);
    while (!last.done()) usleep(100);
    last.wait();
  });
  EXPECT_THAT(ends, testing::Each(0));
}

TEST(ParaexpressApi, AKilledProcessIsNamed) {
  const auto ends = with_children(3, [](int rank, const char* root) {
    const clustarPxOptions_v1 options = options_of(rank, 3, root);
    clustarPx_t comm = 0;
    ASSERT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_OK) << clustarPxLastError();
    std::vector<float> values(500'000);
    ASSERT_EQ(clustarPxRegister(comm, values.data(), values.size() * sizeof(float)), CLUSTARPX_OK);
    for (int i = 0;; ++i) {
      if (rank == 2 && i == 5) (void)raise(SIGKILL);
      const auto begin = steady_clock::now();
      clustarPxOperation_t sum = 0;
      int status = clustarPxAllReduce(comm, values.data(), values.size(), CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &sum);
      if (status == CLUSTARPX_OK) status = clustarPxWait(sum);
      if (status == CLUSTARPX_OK) continue;
      EXPECT_EQ(status, CLUSTARPX_EREMOTE);
      EXPECT_THAT(clustarPxLastError(), HasSubstr("rank 2: "));
      EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(tests::kSanitized ? 20 : 3));
      break;
    }
    EXPECT_EQ(clustarPxFinalize(comm), CLUSTARPX_OK);
  });
  EXPECT_THAT(ends, testing::ElementsAre(0, -SIGKILL));
}

// Two ranks and a newcomer; then rank 0 leaves, and the others at once.
TEST(ParaexpressApi, RanksJoinAndLeave) {
  const auto ends = with_children(3, [](int number, const char* root) {
    clustarPxPlace_v1 place{};
    clustarPxOptions_v1 options = options_of(number == 2 ? 0 : number, number == 2 ? 0 : 2, root);
    place.ranks = options.ranks;
    auto comm = number == 2 ? px::Communicator::join(options, 20'000, place) : px::Communicator(options);
    std::vector<float> values(3000);
    comm.add_memory(values.data(), values.size() * sizeof(float));
    int seen = 0;
    for (bool grown = false; place.ranks != 2 || !grown;) {
      grown = grown || place.ranks == 3;
      seen = std::max(seen, place.ranks);
      std::fill(values.begin(), values.end(), 1.0F);
      comm.all_reduce(values.data(), values.size()).wait();
      ASSERT_EQ(values, std::vector<float>(3000, static_cast<float>(place.ranks)));
      if (number == 0 && grown) return comm.leave();
      place = comm.resize();
      EXPECT_EQ(place.refused, 0);
    }
    EXPECT_EQ(seen, 3);
    EXPECT_EQ(place.rank, number - 1);
    comm.broadcast(values.data(), 4, 1).wait();
    comm.leave();
  });
  EXPECT_THAT(ends, testing::ElementsAre(0, 0));
}

TEST(ParaexpressApi, WhatAJoinMayNotBeGivenSaysWhatIsAllowed) {
  clustarPx_t comm = 0;
  clustarPxPlace_v1 place{};
  clustarPxOptions_v1 options = options_of(0, 2, "127.0.0.1:1");
  EXPECT_EQ(clustarPxJoin(&options, 10, &comm, nullptr), CLUSTARPX_EINVAL);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("allowed: a rank of 0 or more, which chooses a device, 0 ranks"));
  options.ranks = 0;
  EXPECT_EQ(clustarPxJoin(&options, 10, &comm, &place), CLUSTARPX_EINVAL);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("sizeof(clustarPxPlace_v1)"));
  EXPECT_EQ(clustarPxJoin(&options, 10, &comm, nullptr), CLUSTARPX_EREMOTE);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("nobody listens at 127.0.0.1:1"));
  options.root = nullptr;
  options.hosts = "";
  EXPECT_EQ(clustarPxJoin(&options, 10, &comm, nullptr), CLUSTARPX_EINVAL);
  options.hosts = "127.0.0.1:1,[::1],localhost";
  EXPECT_EQ(clustarPxJoin(&options, 10, &comm, nullptr), CLUSTARPX_EREMOTE);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("127.0.0.1:1, [::1]:1, localhost:1"));
  EXPECT_EQ(clustarPxResize(comm, nullptr), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxLeave(comm), CLUSTARPX_EINVAL);
}

TEST(ParaexpressApi, WhatCannotChangeStaysAsItIs) {
  clustarPx_t comm = 0;
  clustarPxOptions_v1 options = options_of(0, 1, "nothing");
  EXPECT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_EINVAL);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("'nothing' is no address"));
  options.root = nullptr;
  options.regions = "a ranks=0\n";
  ASSERT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_OK) << clustarPxLastError();
  EXPECT_EQ(clustarPxResize(comm, nullptr), CLUSTARPX_EUSAGE);
  EXPECT_EQ(clustarPxLeave(comm), CLUSTARPX_EUSAGE);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("allowed: no helpers, and regions empty or 'probe'"));
  EXPECT_EQ(clustarPxFinalize(comm), CLUSTARPX_OK);
}

// Its port is taken: nobody can join, and it works on.
TEST(ParaexpressApi, APortThatIsTakenKeepsNewcomersOut) {
  const std::string root = rendezvous::Bootstrap::pick_loopback_root().value();
  const auto taken = rendezvous::tcp_listen(*rendezvous::parse_host_port(root));
  ASSERT_TRUE(taken);
  const clustarPxOptions_v1 options = options_of(0, 1, root.c_str());
  clustarPx_t comm = 0;
  ASSERT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_OK) << clustarPxLastError();
  EXPECT_EQ(clustarPxResize(comm, nullptr), CLUSTARPX_OK);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("rank 0 cannot listen on " + root));
  EXPECT_EQ(clustarPxLeave(comm), CLUSTARPX_OK);
}

TEST(ParaexpressApi, WhatOneRankCannotDoFailsAll) {
  const auto ends = with_children(2, [](int rank, const char* root) {
    const clustarPxOptions_v1 options = options_of(rank, 2, root);
    clustarPx_t comm = 0;
    ASSERT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_OK) << clustarPxLastError();
    std::vector<float> values(10);
    ASSERT_EQ(clustarPxRegister(comm, values.data(), 40), CLUSTARPX_OK);
    clustarPxOperation_t sum = 0;
    if (rank == 1) {
      EXPECT_EQ(clustarPxAllReduce(comm, values.data(), 10, 99, CLUSTARPX_SUM, &sum), CLUSTARPX_EINVAL);
      EXPECT_THAT(clustarPxLastError(), HasSubstr("datatype 99; allowed: CLUSTARPX_INT8 (0)"));
    } else {
      ASSERT_EQ(clustarPxAllReduce(comm, values.data(), 10, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &sum), CLUSTARPX_OK);
      EXPECT_NE(clustarPxWait(sum), CLUSTARPX_OK);
      EXPECT_THAT(clustarPxLastError(), HasSubstr("rank 1: datatype 99"));
    }
    EXPECT_EQ(clustarPxFinalize(comm), CLUSTARPX_OK);
  });
  EXPECT_THAT(ends, testing::Each(0));
}

TEST(ParaexpressApi, WrongArgumentsSayWhatIsAllowed) {
  clustarPx_t comm = 0;
  clustarPxOptions_v1 options = options_of(0, 1, nullptr);
  const auto refused = [&](const char* why) {
    EXPECT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_EINVAL);
    EXPECT_THAT(clustarPxLastError(), HasSubstr(why));
    options = options_of(0, 1, nullptr);
  };
  EXPECT_EQ(clustarPxInit(nullptr, &comm), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxInit(&options, nullptr), CLUSTARPX_EINVAL);
  options.size = 8;
  refused("sizeof(clustarPxOptions_v1)");
  options.rank = 1;
  refused("allowed: 1 to 256 ranks");
  options.helpers = 65;
  refused("allowed: 0 to 64");
  options.plan = "star";
  refused("allowed: null, direct, ring");
  options.ranks = 2;
  refused("root and hosts: allowed: one of them");
  options.ranks = 3;
  options.hosts = "a,b";
  refused("allowed: a host per rank");
  options.stall_ms = -1;
  refused("stall_ms -1");

  ASSERT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_OK) << clustarPxLastError();
  float value = 7;
  clustarPxOperation_t one = 0;
  EXPECT_EQ(clustarPxRegister(comm, nullptr, 4), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxRegister(comm + 1, &value, 4), CLUSTARPX_EINVAL);
  ASSERT_EQ(clustarPxRegister(comm, &value, 4), CLUSTARPX_OK);
  EXPECT_EQ(clustarPxAllReduce(comm, &value, 1, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, nullptr), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxAllReduce(comm + 1, &value, 1, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &one), CLUSTARPX_EINVAL);
  ASSERT_EQ(clustarPxAllReduce(comm, &value, 1, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &one), CLUSTARPX_OK);
  int done = 0;
  EXPECT_EQ(clustarPxTest(one, nullptr), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxTest(one, &done), CLUSTARPX_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(clustarPxWait(one), CLUSTARPX_OK);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(clustarPxWait(one), CLUSTARPX_EINVAL) << "once";
  EXPECT_EQ(clustarPxTest(one, &done), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxFinalize(comm), CLUSTARPX_OK);
  EXPECT_EQ(clustarPxFinalize(comm), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxAllReduce(comm, &value, 1, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &one), CLUSTARPX_EINVAL);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("one that is not finalized"));
}

TEST(ParaexpressApi, AReductionThatIsNoneIsRefused) {
  clustarPx_t comm = 0;
  const clustarPxOptions_v1 options = options_of(0, 1, nullptr);
  ASSERT_EQ(clustarPxInit(&options, &comm), CLUSTARPX_OK) << clustarPxLastError();
  float value = 7;
  clustarPxOperation_t one = 0;
  EXPECT_EQ(clustarPxAllReduce(comm, &value, 1, CLUSTARPX_FLOAT32, 1, &one), CLUSTARPX_EINVAL);
  EXPECT_THAT(clustarPxLastError(), HasSubstr("reduction 1; allowed: CLUSTARPX_SUM (0), CLUSTARPX_MAX (2)"));
  EXPECT_EQ(clustarPxFinalize(comm), CLUSTARPX_OK);
}

}  // namespace
}  // namespace clustar
