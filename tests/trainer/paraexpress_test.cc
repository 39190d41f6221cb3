// `clustar train --collective paraexpress`: ranks as processes, over the transport itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTwoRacks = "rack0 ranks=0-1 oversubscription=4\nrack1 ranks=2-3 oversubscription=4\n";

constexpr double kBytesOfGradients = 2678824;
constexpr double kShortSteps = 8;

struct PlanOfRanks {
  const char* plan;
  int ranks;
};

class TrainByPlan : public ::testing::TestWithParam<PlanOfRanks> {};

TEST_P(TrainByPlan, ReplicasStayEqualAndTrainAsTheProxysDo) {
  const auto& [plan, ranks] = GetParam();
  const TemporaryDirectory dir;
  dir.write("regions", ranks == 4 ? kTwoRacks : "rack0 ranks=0\nrack1 ranks=1\n");
  const Words common = plus(kShortRun, {"--ranks", std::to_string(ranks)});
  const json run = results_by("paraexpress", plus(common, {"--plan", plan, "--regions", dir.file("regions")}));
  ASSERT_TRUE(run.contains("replicas_identical"));
  EXPECT_EQ(run["replicas_identical"], true);
  EXPECT_EQ(run["collective"], "paraexpress");
  EXPECT_EQ(run["plan"], plan);
  EXPECT_EQ(run["steps"], kShortSteps);
  EXPECT_THAT(run["regions"]["map"].get<std::string>(), HasSubstr("rack1"));
  EXPECT_TRUE(run["regions"]["found"].is_null());
  EXPECT_TRUE(run["transport"]["plugin"].is_null());
  EXPECT_NE(run["transport"]["transport"].get<std::string>(), "");
  ASSERT_EQ(run["plans"].size(), run["buckets"].size());
  for (std::size_t bucket = 0; bucket < run["buckets"].size(); ++bucket) {
    EXPECT_EQ(run["plans"][bucket]["bytes"], run["buckets"][bucket]["bytes"]);
    if (plan != std::string("auto")) {
      EXPECT_EQ(run["plans"][bucket]["plan"], plan);
    }
  }
  // Up and down each edge of a tree over the ranks, whatever tree.
  const double expected = kShortSteps * 2 * (ranks - 1) * kBytesOfGradients;
  EXPECT_NEAR(run["bytes_sent"].get<double>(), expected, 0.01 * expected);
  EXPECT_EQ(run["bytes_received"], run["bytes_sent"]);
  EXPECT_TRUE(run["missing_bytes"].is_null());
  EXPECT_EQ(run["loss_bound"], 0.0);
#ifdef CLUSTAR_PLUGIN
  static std::map<int, json> by_proxy;
  if (!by_proxy.contains(ranks)) by_proxy[ranks] = results_by("proxy", plus(common, {"--plugin", CLUSTAR_PLUGIN}));
  const json& proxy = by_proxy[ranks];
  // They add in another order.
  EXPECT_NEAR(run["loss"].get<double>(), proxy["loss"].get<double>(), 1e-5);
  EXPECT_NEAR(run["held_out_loss"].get<double>(), proxy["held_out_loss"].get<double>(), 1e-4);
  EXPECT_NEAR(run["accuracy"].get<double>(), proxy["accuracy"].get<double>(), 0.01);
  EXPECT_NEAR(run["bytes_sent"].get<double>(), proxy["bytes_sent"].get<double>(), 0.01 * expected);
#endif
}

std::vector<PlanOfRanks> every_plan() {
  std::vector<PlanOfRanks> all;
  for (const char* plan : {"auto", "direct", "ring", "double-tree", "hierarchical", "server"}) {
    for (const int ranks : {2, 4}) all.push_back({plan, ranks});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, TrainByPlan, ::testing::ValuesIn(every_plan()), [](const auto& one) {
  std::string name = one.param.plan;
  std::erase(name, '-');
  return name + std::to_string(one.param.ranks);
});

TEST(TrainByParaexpress, SaysWhichRegionsProbingFound) {
  const json probed = results_by("paraexpress", plus(kShortRun, {"--ranks", "4", "--regions", "probe"}));
  EXPECT_THAT(probed["regions"]["found"].get<std::string>(), HasSubstr("region"));
  EXPECT_THAT(probed["regions"]["map"].get<std::string>(), HasSubstr("region0 ranks=0"));
  EXPECT_TRUE(results_by("paraexpress", plus(kShortRun, {"--ranks", "2"}))["regions"].is_null());
}

TEST(TrainByParaexpress, RepeatsBitForBitAlsoWithAForwardThatOverlaps) {
  const Words options = plus(kShortRun, {"--ranks", "3", "--plan", "double-tree"});
  const json first = results_by("paraexpress", options);
  EXPECT_EQ(results_by("paraexpress", options)["parameters_digest"], first["parameters_digest"]);
  const json overlapped = results_by("paraexpress", plus(options, {"--overlap-forward"}));
  EXPECT_EQ(overlapped["parameters_digest"], first["parameters_digest"]);
}

// Blobs are gathered and summed in the order of the ranks, by either collective.
TEST(TrainByParaexpress, GathersBlobsOfACodec) {
  const Words options = plus(kShortRun, {"--ranks", "3", "--codec", "topk"});
  const json run = results_by("paraexpress", options);
  EXPECT_EQ(run["replicas_identical"], true);
  EXPECT_TRUE(run["plans"].is_null());
#ifdef CLUSTAR_PLUGIN
  const json proxy = results_by("proxy", plus(options, {"--plugin", CLUSTAR_PLUGIN}));
  EXPECT_EQ(run["parameters_digest"], proxy["parameters_digest"]);
#endif
}

TEST(TrainByParaexpress, OverMltPacketsThatAreLostOnPurposeChangeNoBit) {
  const Words options = plus(kShortRun, {"--ranks", "2", "--plan", "direct"});
  setenv("CLUSTAR_TRANSPORT", "tcp", 1);
  const json tcp = results_by("paraexpress", options);
  setenv("CLUSTAR_TRANSPORT", "mlt", 1);
  const json mlt = results_by("paraexpress", plus(options, {"--inject-loss", "0.02"}));
  unsetenv("CLUSTAR_TRANSPORT");
  EXPECT_EQ(tcp["transport"]["transport"], "tcp");
  EXPECT_EQ(mlt["transport"]["transport"], "mlt");
  EXPECT_EQ(mlt["parameters_digest"], tcp["parameters_digest"]);
}

TEST(TrainByParaexpress, TheTableSaysByWhichPlanAndOverWhat) {
  const Outcome outcome = run_clustar(train_by("paraexpress", plus(kShortRun, {"--ranks", "2", "--plan", "ring"})));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("ParaExpress, plan ring: ring at"), HasSubstr(", device ")));
}

TEST(TrainByParaexpress, OneRankNeedsNoEngine) {
  const json run = results_by("paraexpress", kShortRun);
  EXPECT_TRUE(run["transport"].is_null());
  EXPECT_EQ(run["plan"], "auto");
  EXPECT_TRUE(run["plans"].is_null());
}

TEST(TrainByParaexpress, AKilledRankEndsTheRunSoonAndIsNamed) {
  Command command(
      train_by("paraexpress", {"--model", "mlp", "--epochs", "100000", "--ranks", "3", "--examples", "500"}));
  expect_killed_rank_is_named(command);
}

// Ranks that nobody supervises.
class RanksByHand : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto root = proxy::Bootstrap::pick_loopback_root();
    ASSERT_TRUE(root) << root.error().message;
    root_ = *root;
  }
  Words rank(const std::string& number, const std::string& size, const Words& more) const {
    return train_by(
        "paraexpress",
        plus({"--model", "mlp", "--examples", "500", "--rank", number, "--size", size, "--root", root_}, more));
  }
  std::string root_;
};

TEST_F(RanksByHand, NoticeThatAnotherDiedAndNameIt) {
  const Words endless{"--epochs", "100000"};
  Command zero(rank("0", "3", endless));
  Command one(rank("1", "3", endless));
  Command two(rank("2", "3", endless));
  ASSERT_TRUE(zero.wait_for_error_text("epoch   1/"));
  kill(one.pid(), SIGKILL);
  const auto before = std::chrono::steady_clock::now();
  for (Command* survivor : {&zero, &two}) {
    const Outcome outcome = survivor->wait();
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(15));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  }
}

TEST_F(RanksByHand, ThatDifferInPlanOrRegionsSaySo) {
  const TemporaryDirectory dir;
  dir.write("racks", "rack0 ranks=0\nrack1 ranks=1\n");
  for (const auto& [more, said] : {std::pair(Words{"--plan", "ring"}, "differ in --plan"),
                                   std::pair(Words{"--regions", dir.file("racks")}, "differ in the region map")}) {
    SetUp();
    Command zero(rank("0", "2", {"--epochs", "1"}));
    Command one(rank("1", "2", plus({"--epochs", "1"}, more)));
    const Outcome second = one.wait();
    EXPECT_EQ(second.status, 1);
    EXPECT_THAT(second.err, HasSubstr(std::string("ranks 0 and 1 ") + said));
    EXPECT_EQ(zero.wait().status, 1);
  }
}

TEST(TrainByParaexpress, HelpersAddUpAndAreCounted) {
  const Words common = plus(kShortRun, {"--ranks", "2"});
  const json plain = results_by("paraexpress", plus(common, {"--plan", "direct"}));
  const json helped = results_by("paraexpress", plus(common, {"--plan", "sharded", "--helpers", "2"}));
  ASSERT_TRUE(helped.contains("helpers") && plain.contains("helpers"));
  EXPECT_TRUE(plain["helpers"].is_null());
  EXPECT_EQ(helped["helpers"], (json{{"given", 2}, {"left", 2}}));
  EXPECT_EQ(helped["replicas_identical"], true);
  EXPECT_EQ(helped["plans"][0]["plan"], "sharded");
  EXPECT_EQ(helped["loss"], plain["loss"]) << "both add from rank 0 on";
}

TEST(TrainByParaexpress, WhatIsOfOtherCollectivesIsRefused) {
  const TemporaryDirectory dir;
  dir.write("one", "rack0 ranks=0-3\n");
  dir.write("few", "rack0 ranks=0-1\nrack1 ranks=2\n");
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--plan", "star"}, "none of auto, direct, ring, double-tree, hierarchical, server, sharded"},
      {{"--plan", "sharded"}, "sharded needs helpers and two ranks or more: add --helpers K"},
      {{"--helpers", "65"}, "--helpers"},
      {{"--helpers", "1", "--helpers-root", "127.0.0.1:1"}, "for ranks that are started by hand"},
      {{"--plan", "hierarchical"}, "two regions or more: add --regions FILE"},
      {{"--plan", "hierarchical", "--regions", dir.file("one")}, "two regions or more"},
      {{"--regions", "/nonexistent/regions"}, "/nonexistent/regions"},
      {{"--regions", dir.file("few")}, "rank 3 is in no region; allowed: each rank from 0 to 3 in one"},
      {{"--plugin", CLUSTAR_ANY_PLUGIN}, "opens no plugin; CLUSTAR_TRANSPORT"},
      {{"--plugin-version", "9"}, "opens no plugin; CLUSTAR_TRANSPORT"},
      {{"--channels", "2"}, "goes by --plan"},
      {{"--all-reduce", "ring"}, "goes by --plan"},
      {{"--missing", "zero"}, "loses nothing"},
      {{"--loss-tolerance", "0.01"}, "loses nothing"},
      {{"--front-buckets", "1"}, "--collective proxy only"},
      {{"--no-communication"}, "leave out --collective"},
  };
  for (const auto& [options, expected] : cases) {
    const Outcome outcome = run_clustar(train_by("paraexpress", plus({"--ranks", "4"}, options)));
    EXPECT_EQ(outcome.status, 2) << options[0] << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << options[0];
  }
  for (const char* collective : {"proxy", "nccl"}) {
    for (const char* option : {"--plan", "--regions", "--helpers", "--helpers-root"}) {
      const std::string value = option == std::string("--helpers") ? "1" : "ring";
      const Outcome outcome = run_clustar(train_by(collective, {"--ranks", "2", option, value}));
      EXPECT_EQ(outcome.status, 2);
      EXPECT_THAT(outcome.err, HasSubstr(std::string(option) + " is of --collective paraexpress only"));
    }
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
