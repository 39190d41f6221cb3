// The tuner asked on every rank, and a second profiler behind ours, both through the .so.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/abi/tuner.h"
#include "tests/plugin/fake_nccl/loaded.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/temp_path.h"
#include "transport/base/rng.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;

constexpr int kAlgorithms = 7;
constexpr int kProtocols = 3;
using Costs = std::array<float, kAlgorithms * kProtocols>;

float& at(Costs& costs, int algorithm, int protocol) {
  return costs[static_cast<std::size_t>(algorithm * kProtocols + protocol)];
}

Communicator communicator(std::uint64_t id, std::uint32_t ranks, const char* name) {
  Communicator comm;
  comm.id = id;
  comm.name = name;
  comm.ranks = comm.nodes = ranks;
  return comm;
}

class FakeNcclTuner : public ::testing::TestWithParam<int> {};

// One process per rank in life; here each rank's tuner is a context of its own. What may differ between ranks (its
// rank, whether buffers are registered, the order of calls) must not show.
TEST_P(FakeNcclTuner, GivesTheSameAnswerOnAllRanks) {
  const Environment environment(
      {{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_LOSS_RULES", "comm=dp*,bytes=1M-;func=reducescatter,p=0.02"}});
  const Library library(kPluginPath);
  const auto net = library.net(12);
  ASSERT_NE(net, nullptr);
  for (const char* name : {"dp0", "tp", ""}) {
    const std::uint64_t id = 0x70 + static_cast<std::uint64_t>(name[0]);
    void* context = nullptr;
    ASSERT_EQ(net->init(&context, id, -1, profiler_callback), kSuccess);
    std::vector<std::unique_ptr<ProfilerPort>> profilers;
    std::vector<std::unique_ptr<TunerPort>> tuners;
    for (int rank = 0; rank < 4; ++rank) {
      Communicator comm = communicator(id, 4, name);
      comm.rank = rank;
      // NCCL's order: net, profiler, tuner.
      profilers.push_back(library.profiler(5, comm));
      tuners.push_back(library.tuner(GetParam(), comm));
      ASSERT_NE(tuners.back(), nullptr);
    }
    Rng rng(7);
    for (int i = 0; i < 2000; ++i) {
      Costs asked;
      for (float& cost : asked) cost = rng.below(5) == 0 ? kCostIgnored : static_cast<float>(1 + rng.below(1000));
      const int function = static_cast<int>(rng.below(5));
      const std::size_t bytes = std::size_t{1} << rng.below(34);
      std::vector<Costs> answers;
      for (std::size_t rank = 0; rank < tuners.size(); ++rank) {
        answers.push_back(asked);
        ASSERT_EQ(tuners[rank]->get(function, bytes, answers.back().data(), kAlgorithms, kProtocols, rank % 2 == 0),
                  kSuccess);
      }
      for (const Costs& answer : answers) ASSERT_EQ(answer, answers.front());
      for (std::size_t k = 0; k < asked.size(); ++k) {
        // Never brought back to life what NCCL ignores.
        if (asked[k] == kCostIgnored) {
          ASSERT_EQ(answers.front()[k], kCostIgnored);
        }
      }
    }
    tuners.clear();
    profilers.clear();
    EXPECT_EQ(net->finalize(context), kSuccess);
  }
}

TEST_P(FakeNcclTuner, SteersOptedInCommunicatorsToRingAndSimpleAndOthersNowhere) {
  const Environment environment({{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_LOSS_TRAFFIC_CLASSES", "160"}});
  const Library library(kPluginPath);
  const auto net = library.net(12);
  for (const int traffic_class : {160, 161}) {
    const Communicator comm = communicator(0x900 + static_cast<std::uint64_t>(traffic_class), 4, "");
    void* context = nullptr;
    ASSERT_EQ(net->init(&context, comm.id, traffic_class, profiler_callback), kSuccess);
    const auto profiler = library.profiler(5, comm);
    const auto tuner = library.tuner(GetParam(), comm);
    Costs costs;
    costs.fill(5);
    ASSERT_EQ(tuner->get(kAllReduce, std::size_t{64} << 20, costs.data(), kAlgorithms, kProtocols, false), kSuccess);
    // v4's init names no communicator, so that its class is not known there.
    const bool steered = traffic_class == 160 && GetParam() >= 5;
    EXPECT_GE(at(costs, kRing, kSimple), 0);
    EXPECT_EQ(at(costs, kTree, kSimple) == kCostIgnored, steered);
    EXPECT_EQ(at(costs, kRing, kLL) == kCostIgnored, steered);
    EXPECT_EQ(net->finalize(context), kSuccess);
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, FakeNcclTuner, ::testing::Values(4, 5, 6),
                         [](const auto& given) { return "v" + std::to_string(given.param); });

struct ChainCase {
  int ours;   // version by which NCCL calls us
  int chain;  // that the chained profiler exports
  const char* path;
};

class FakeNcclChain : public ::testing::TestWithParam<ChainCase> {};

// The chained profiler leaves its figures in a file when its last communicator ends.
std::map<std::string, std::uint64_t> figures(const std::string& path) {
  std::map<std::string, std::uint64_t> out;
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    std::string type;
    if (word == "type") file >> type;
    std::uint64_t value = 0;
    file >> value;
    out[word + type] = value;
  }
  return out;
}

TEST_P(FakeNcclChain, ReceivesAllEventsWithItsOwnParents) {
  const std::string path = tests::temp_path("chain");
  const Environment environment(
      {{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_CHAIN_PROFILER", GetParam().path}, {"CLUSTAR_TEST_CHAIN_FILE", path}});
  std::uint64_t sent = 0;
  std::uint64_t channels = 0;
  {
    const Library library(kPluginPath);
    JobOptions options;
    options.profiler_version = GetParam().ours;
    options.comm = communicator(0xc4a1, 2, "");
    options.comm.channels = 2;
    options.comm.buffer_bytes = 1 << 20;
    options.policy = &policies().front();
    Job job(library, options);
    Task task;
    task.datatype = datatype_named("ncclFloat32");
    task.count = 300'000;
    for (int i = 0; i < 5; ++i) job.launch(0, task);
    task.function = kSend;
    job.launch(0, task);
    ASSERT_TRUE(job.run(std::chrono::seconds(40)));
    ASSERT_EQ(job.tally().errors.load(), 0u) << job.tally().first_error;
    sent = job.tally().sent;
    channels = 2 * 2 * (5 + 1);  // ranks, channels, tasks
  }
  auto seen = figures(path);
  std::remove(path.c_str());
  ASSERT_FALSE(seen.empty()) << "the chained profiler was not ended";
  EXPECT_EQ(seen["type" + std::to_string(kEventColl)], 2u * 5);
  EXPECT_EQ(seen["type" + std::to_string(kEventP2p)], 2u * 2);  // a send and a receive
  EXPECT_EQ(seen["type" + std::to_string(kEventGroup)], 2u * 6);
  const bool apis = GetParam().ours >= 5 && GetParam().chain >= 5;
  EXPECT_EQ(seen["type" + std::to_string(kEventGroupApi)], apis ? 2u * 6 : 0u);
  EXPECT_EQ(seen["type" + std::to_string(kEventProxyOp)], 2 * channels);  // both directions
  EXPECT_EQ(seen["type" + std::to_string(kEventProxyStep)], 2 * sent);
  // Ours asks NCCL with an event that only we understand; it is passed on like all.
  EXPECT_GE(seen["type" + std::to_string(kEventNetPlugin)], sent);
  EXPECT_EQ(seen["orphans"], 0u);
  EXPECT_EQ(seen["unknown_stops"], 0u);
  EXPECT_EQ(seen["open"], 0u);
  EXPECT_GT(seen["records"], 0u);
}

INSTANTIATE_TEST_SUITE_P(Versions, FakeNcclChain,
                         ::testing::Values(ChainCase{4, 4, CLUSTAR_CHAIN_V4}, ChainCase{5, 5, CLUSTAR_CHAIN_V5},
                                           ChainCase{6, 6, CLUSTAR_CHAIN_V6}, ChainCase{5, 4, CLUSTAR_CHAIN_V4},
                                           ChainCase{6, 5, CLUSTAR_CHAIN_V5}),
                         [](const auto& given) {
                           return "nccl" + std::to_string(given.param.ours) + "chain" +
                                  std::to_string(given.param.chain);
                         });

}  // namespace
}  // namespace clustar::tests::fake_nccl
