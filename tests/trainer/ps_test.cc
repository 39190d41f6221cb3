// `clustar train --collective ps`: the parameter server of 2018, ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/exchange.h"
#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainByServer : public ::testing::TestWithParam<int> {};

TEST_P(TrainByServer, ReplicasStayEqualAndTrainAsTheProxysDoWithoutOverlap) {
  const int ranks = GetParam();
  const Words common = plus(kShortRun, {"--ranks", std::to_string(ranks)});
  const json run = results_by("ps", common);
  ASSERT_TRUE(run.contains("replicas_identical"));
  EXPECT_EQ(run["replicas_identical"], true);
  EXPECT_EQ(run["collective"], "ps");
  EXPECT_EQ(run["parameter_server"]["label"], kPsLabel);
  EXPECT_THAT(kPsLabel, HasSubstr("baseline of 2018"));
  EXPECT_TRUE(run["plan"].is_null());
  EXPECT_TRUE(run["all_reduce"].is_null());
  EXPECT_EQ(run["hidden_comm_s"], 0.0);
  EXPECT_EQ(run["transport"].is_null(), ranks == 1);
  if (ranks > 1) {
    EXPECT_TRUE(run["transport"]["plugin"].is_null());
    EXPECT_EQ(run["transport"]["transport"], "kernel TCP");
    EXPECT_GT(run["exposed_comm_s"], 0.0);
  }
  // To the server and back; rank 0 is where the server is.
  const json bytes = run["steps"].get<int>() * 2 * (ranks - 1) * run["gradient_bytes"].get<long>();
  EXPECT_EQ(run["bytes_sent"], bytes);
  EXPECT_EQ(run["bytes_received"], bytes);
#ifdef CLUSTAR_PLUGIN
  const json proxy = results_by("proxy", plus(common, {"--plugin", CLUSTAR_PLUGIN}));
  EXPECT_TRUE(proxy["parameter_server"].is_null());
  // They add in another order.
  EXPECT_NEAR(run["loss"].get<double>(), proxy["loss"].get<double>(), 1e-5);
  EXPECT_NEAR(run["held_out_loss"].get<double>(), proxy["held_out_loss"].get<double>(), 1e-4);
  EXPECT_NEAR(run["accuracy"].get<double>(), proxy["accuracy"].get<double>(), 0.01);
  if (ranks <= 2) {
    EXPECT_EQ(run["parameters_digest"], proxy["parameters_digest"]) << "two numbers have one sum";
  }
#endif
}

INSTANTIATE_TEST_SUITE_P(Ranks, TrainByServer, ::testing::Values(1, 2, 4));

TEST(TrainByPs, GathersBlobsOfACodec) {
  const Words options = plus(kShortRun, {"--ranks", "3", "--codec", "topk"});
  const json run = results_by("ps", options);
  EXPECT_EQ(run["replicas_identical"], true);
  EXPECT_EQ(run["parameters_digest"], results_by("paraexpress", options)["parameters_digest"]);
}

TEST(TrainByPs, TheTableSaysThatItIsABaseline) {
  const Outcome outcome = run_clustar(train_by("ps", plus(kShortRun, {"--ranks", "2"})));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(kPsLabel), HasSubstr("kernel TCP ("), HasSubstr("0.000 s hidden")));
}

const Words kEndless{"--model", "mlp", "--epochs", "100000", "--examples", "500"};

TEST(TrainByPs, AKilledRankEndsTheRunSoonAndIsNamed) {
  Command command(train_by("ps", plus(kEndless, {"--ranks", "3"})));
  expect_killed_rank_is_named(command);
}

// Ranks that nobody supervises: a worker dies, and the one whose process is the server.
TEST(TrainByPs, RanksByHandNameTheOneThatDied) {
  for (const std::size_t victim : {1u, 0u}) {
    const auto root = proxy::Bootstrap::pick_loopback_root();
    ASSERT_TRUE(root) << root.error().message;
    std::vector<std::unique_ptr<Command>> ranks;
    for (const char* rank : {"0", "1", "2"}) {
      const Words words = plus(kEndless, {"--rank", rank, "--size", "3", "--root", *root});
      ranks.push_back(std::make_unique<Command>(train_by("ps", words)));
    }
    ASSERT_TRUE(ranks[0]->wait_for_error_text("epoch   1/"));
    kill(ranks[victim]->pid(), SIGKILL);
    const auto before = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Outcome outcome = ranks[rank]->wait();
      if (rank == victim) continue;
      EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(15));
      EXPECT_EQ(outcome.status, 1);
      EXPECT_THAT(outcome.err, HasSubstr("rank " + std::to_string(victim)));
    }
  }
}

TEST(TrainByPs, WhatIsOfOtherCollectivesIsRefused) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--plugin", CLUSTAR_ANY_PLUGIN}, "--plugin is not for --collective ps: the parameter server opens no plugin"},
      {{"--plugin-version", "9"}, "opens no plugin"},
      {{"--channels", "2"}, "one connection"},
      {{"--all-reduce", "ring"}, "one connection"},
      {{"--missing", "zero"}, "loses nothing"},
      {{"--loss-tolerance", "0.01"}, "loses nothing"},
      {{"--inject-loss", "0.01"}, "allowed: those of `clustar fabric`"},
      {{"--inject-faults", "delay=1ms"}, "allowed: those of `clustar fabric`"},
      {{"--overlap-forward"}, "a baseline without overlap; allowed: --collective proxy, nccl and paraexpress"},
      {{"--front-buckets", "1"}, "--collective proxy only"},
      {{"--no-communication"}, "leave out --collective"},
      {{"--plan", "ring"}, "--plan is of --collective paraexpress only"},
      {{"--regions", "probe"}, "--regions is of --collective paraexpress only"},
      {{"--helpers", "1"}, "--helpers is of --collective paraexpress only"},
  };
  for (const auto& [options, expected] : cases) {
    const Outcome outcome = run_clustar(train_by("ps", plus({"--ranks", "4"}, options)));
    EXPECT_EQ(outcome.status, 2) << options[0] << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << options[0];
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
