// How the proxy asks a tuner, and what it does with the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "bench/proxy/tuner_plugin.h"
#include "tests/proxy/collectives.h"
#include "tests/proxy/recorder.h"

namespace clustar::bench::proxy {
namespace {

using ::testing::HasSubstr;
using tests::Call;
using tests::Record;

CommunicatorOptions options_of(Protocol protocol) {
  CommunicatorOptions options;
  options.protocol = protocol;
  options.channels = 2;
  options.comm_id = 0x77;
  options.stall_timeout = std::chrono::seconds(40);
  return options;
}

std::vector<Record> questions() {
  std::vector<Record> found;
  for (const Record& record : recorder().records()) {
    if (record.call == Call::kCollInfo) found.push_back(record);
  }
  return found;
}

TEST(Tuner, IsAskedForEachCollectiveWithNcclsSize) {
  recorder().reset();
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(*plugin, bootstrap, options_of(Protocol::kSimple));
    ASSERT_TRUE(comm) << comm.error().message;
    std::vector<float> data(2000);
    std::vector<float> block(1000);
    EXPECT_TRUE((*comm)->all_reduce(data.data(), 2000, DataType::kFloat32, ReduceOp::kSum)->wait());
    EXPECT_TRUE((*comm)->all_gather(block.data(), data.data(), 1000, DataType::kFloat32)->wait());
    EXPECT_TRUE((*comm)->reduce_scatter(data.data(), block.data(), 500, DataType::kFloat32, ReduceOp::kSum)->wait());
    EXPECT_TRUE((*comm)->broadcast(data.data(), 10, DataType::kFloat64, 0)->wait());
    ASSERT_TRUE(bootstrap.barrier());
    EXPECT_TRUE((*comm)->close());
  });
  EXPECT_STREQ(recorder().violations(), "");
  std::map<std::uint64_t, std::size_t> bytes;
  for (const Record& question : questions()) {
    bytes[question.number] = question.bytes;
    EXPECT_EQ(question.proto, "2");  // SIMPLE alone
  }
  EXPECT_EQ(bytes, (std::map<std::uint64_t, std::size_t>{{nccl_abi::kAllReduce, 8000},
                                                         {nccl_abi::kAllGather, 8000},
                                                         {nccl_abi::kReduceScatter, 4000},
                                                         {nccl_abi::kBroadcast, 80}}));
  EXPECT_EQ(questions().size(), 8u);
}

// LL and LL128 take turns with SIMPLE on the same connections.
TEST(Tuner, AForbiddenProtocolGivesWayToSimple) {
  for (const auto& [protocol, number] : {std::pair{Protocol::kLL128, 1u}, std::pair{Protocol::kLL, 0u}}) {
    const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN);
    recorder().reset();
    run_ranks(3, [&, protocol = protocol, number = number](Bootstrap& bootstrap) {
      auto comm = Communicator::create(*plugin, bootstrap, options_of(protocol));
      ASSERT_TRUE(comm) << comm.error().message;
      for (int round = 0; round < 6; ++round) {
        const bool forbidden = round % 2 == 1;
        ASSERT_TRUE(bootstrap.barrier());
        if (bootstrap.rank() == 0) recorder().forbid(forbidden ? 1u << number : 0);
        ASSERT_TRUE(bootstrap.barrier());
        std::vector<float> data(300'000, 1.0f);
        const auto stats = (*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait();
        ASSERT_TRUE(stats) << stats.error().message;
        EXPECT_EQ(stats->protocol, forbidden ? Protocol::kSimple : protocol);
        EXPECT_EQ(data, std::vector<float>(data.size(), 3.0f));
      }
      ASSERT_TRUE(bootstrap.barrier());
      EXPECT_TRUE((*comm)->close());
    });
    EXPECT_STREQ(recorder().violations(), "");
  }
}

TEST(Tuner, NothingLeftOrAFailedCallIsAnErrorOfTheCollective) {
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN);
  for (const bool fails : {false, true}) {
    recorder().reset();
    run_ranks(2, [&](Bootstrap& bootstrap) {
      auto comm = Communicator::create(*plugin, bootstrap, options_of(Protocol::kSimple));
      ASSERT_TRUE(comm) << comm.error().message;
      ASSERT_TRUE(bootstrap.barrier());
      if (bootstrap.rank() == 0 && fails) recorder().fail("get_coll_info", nccl_abi::kInternalError);
      if (bootstrap.rank() == 0 && !fails) recorder().forbid(7);
      ASSERT_TRUE(bootstrap.barrier());
      float value = 1;
      const auto stats = (*comm)->all_reduce(&value, 1, DataType::kFloat32, ReduceOp::kSum)->wait();
      ASSERT_FALSE(stats);
      EXPECT_THAT(stats.error().message, HasSubstr(fails ? "getCollInfo returned ncclInternalError" : "AllReduce"));
      ASSERT_TRUE(bootstrap.barrier());
      EXPECT_TRUE((*comm)->close());
    });
  }
}

TEST(Tuner, AFailedInitFailsTheCommunicator) {
  recorder().reset();
  recorder().fail("tuner_init", nccl_abi::kSystemError);
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    const auto comm = Communicator::create(*plugin, bootstrap, options_of(Protocol::kSimple));
    ASSERT_FALSE(comm);
    EXPECT_THAT(comm.error().message, HasSubstr("the tuner's init returned ncclSystemError"));
  });
}

TEST(Tuner, TheCheapestThatIsLeftIsTaken) {
  CostTable costs = offered_costs(Protocol::kLL128);
  EXPECT_EQ(*cheapest_ring(costs, "AllReduce"), Protocol::kLL128);
  costs[nccl_abi::kRing][nccl_abi::kSimple] = 0;  // a tuner's way to prefer
  EXPECT_EQ(*cheapest_ring(costs, "AllReduce"), Protocol::kSimple);
  costs[nccl_abi::kTree][nccl_abi::kSimple] = 0;  // not ours to run, and never offered
  costs[nccl_abi::kRing].fill(nccl_abi::kCostIgnored);
  EXPECT_FALSE(cheapest_ring(costs, "AllReduce"));
}

}  // namespace
}  // namespace clustar::bench::proxy
