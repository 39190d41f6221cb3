// `clustar train` with rebuilt buckets, micro-batches, sharded optimisers and all-to-alls of layers: in several
// processes, over real transports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;

#ifdef CLUSTAR_PLUGIN
const Words kByPlugin{"--plugin", CLUSTAR_PLUGIN};

json by_plugin(const Words& more) { return results_by("proxy", plus(plus(kShortRun, kByPlugin), more)); }

// Of two ranks a sum has one order, whatever the buckets.
TEST(TrainRebuilds, OneBucketIntoThoseOfTheCapsWithTheSameBits) {
  const json plain = by_plugin({"--ranks", "2"});
  EXPECT_EQ(plain["rebuilt_buckets"], json({{"after_step", 1}, {"changed", false}}));
  EXPECT_TRUE(plain["initial_buckets"].is_null());
  EXPECT_EQ(plain["buckets"].size(), 2u);
  for (const char* overlap : {"--check-equal=every", "--overlap-forward"}) {
    const json rebuilt = by_plugin({"--ranks", "2", "--initial-buckets", "one", overlap});
    EXPECT_EQ(rebuilt["rebuilt_buckets"], json({{"after_step", 1}, {"changed", true}}));
    EXPECT_EQ(rebuilt["initial_buckets"].size(), 1u);
    EXPECT_EQ(rebuilt["buckets"], plain["buckets"]);
    EXPECT_EQ(rebuilt["replicas_identical"], true);
    EXPECT_EQ(rebuilt["parameters_digest"], plain["parameters_digest"]);
  }
  const json kept = by_plugin({"--ranks", "2", "--initial-buckets", "one", "--no-rebuild-buckets"});
  EXPECT_TRUE(kept["rebuilt_buckets"].is_null());
  EXPECT_EQ(kept["buckets"].size(), 1u);
}

TEST(TrainAccumulates, WithTheTrafficOfOneBatch) {
  const json plain = by_plugin({"--ranks", "3"});
  const json parts = by_plugin({"--ranks", "3", "--accumulate", "4"});
  EXPECT_EQ(parts["bytes_sent"], plain["bytes_sent"]);
  EXPECT_EQ(parts["steps"], plain["steps"]);
  EXPECT_NEAR(parts["loss"].get<double>(), plain["loss"].get<double>(), 1e-3);
  EXPECT_EQ(parts["replicas_identical"], true);
  EXPECT_EQ(parts["config"]["accumulate"], 4);
}

// Buckets of up to 2 MiB for each rank are cut at the same places by either.
TEST(TrainZero1, HasTheBitsOfAnAllReduceOfARing) {
  const json whole = by_plugin({"--ranks", "4"});
  for (const Words& more : {Words{}, Words{"--overlap-forward"}}) {
    const json sharded = by_plugin(plus({"--ranks", "4", "--optimizer-sharding", "zero1"}, more));
    EXPECT_EQ(sharded["parameters_digest"], whole["parameters_digest"]);
    EXPECT_EQ(sharded["replicas_identical"], true);
    const double sent = whole["bytes_sent"];
    EXPECT_NEAR(sharded["bytes_sent"].get<double>(), sent, 0.01 * sent) << "two halves of the same";
    EXPECT_NEAR(sharded["momentum_bytes"].get<double>(), whole["momentum_bytes"].get<double>() / 4, 100);
  }
  const json rebuilt = by_plugin({"--ranks", "2", "--optimizer-sharding", "zero1", "--initial-buckets", "one"});
  EXPECT_EQ(rebuilt["parameters_digest"], by_plugin({"--ranks", "2"})["parameters_digest"]);
}

const Words kLayers{"--traffic", "moe=experts:4,tokens:100,hidden:64", "--traffic", "dlrm=tables:6,dim:32,batch:40"};

void expect_layers(const json& results, unsigned ranks, unsigned passes) {
  const json& traffic = results["traffic"];
  EXPECT_EQ(traffic["moe"]["exchanges"], 4 * passes);
  EXPECT_EQ(traffic["dlrm"]["exchanges"], 2 * passes);
  EXPECT_EQ(traffic["moe"]["bytes_sent"], 4u * passes * ranks * (ranks - 1) * (4 / ranks) * 50 * 64 * 4);
  EXPECT_EQ(traffic["dlrm"]["bytes_sent"], 2u * passes * (ranks - 1) * 6 * 32 * 40 * 4);
  EXPECT_GT(traffic["moe"]["exposed_s"], 0.0);
}

TEST(TrainLayers, ExchangeBesideTheGradients) {
  for (const char* ranks : {"2", "4"}) {
    const json plain = by_plugin({"--ranks", ranks});
    const json layers = by_plugin(plus({"--ranks", ranks}, kLayers));
    expect_layers(layers, static_cast<unsigned>(ranks[0] - '0'), 8);
    EXPECT_EQ(layers["parameters_digest"], plain["parameters_digest"]);
    EXPECT_EQ(layers["bytes_sent"], plain["bytes_sent"]);
    EXPECT_TRUE(plain["traffic"].is_null());
  }
  const json all = by_plugin(plus({"--ranks", "2", "--accumulate", "2", "--optimizer-sharding", "zero1",
                                   "--overlap-forward", "--initial-buckets", "one"},
                                  kLayers));
  expect_layers(all, 2, 16);
  EXPECT_EQ(all["replicas_identical"], true);
}

// What a reduce-scatter loses is missing from a sum that all ranks get by all-gather; bytes of layers are never lost.
TEST(TrainLoss, GoesForReduceScattersAndForNothingElse) {
  setenv("CLUSTAR_LOSS_WARMUP", "0", 1);
  const json lossy = by_plugin(plus({"--ranks", "2", "--optimizer-sharding", "zero1", "--loss-tolerance", "0.05",
                                     "--inject-loss", "0.02", "--traffic", "moe=experts:2,tokens:512,hidden:512"},
                                    {}));
  unsetenv("CLUSTAR_LOSS_WARMUP");
  EXPECT_EQ(lossy["replicas_identical"], true);
  EXPECT_GT(lossy["missing_bytes"], 0);
  EXPECT_LE(lossy["missing_bytes"].get<double>(), 0.05 * lossy["eligible_bytes"].get<double>());
  // All of each reduce-scatter's payload, and nothing else, could have been lost: 8 steps of half the gradients.
  EXPECT_LE(lossy["eligible_bytes"].get<double>(), 1.01 * 8 * lossy["gradient_bytes"].get<double>());
  EXPECT_EQ(lossy["traffic"]["moe"]["exchanges"], 32);
}
#endif

TEST(TrainParallel, ByParaExpress) {
  for (const char* plan : {"ring", "auto"}) {
    const Words common = plus(kShortRun, {"--ranks", "3", "--plan", plan});
    const json whole = results_by("paraexpress", common);
    const json sharded = results_by(
        "paraexpress", plus(common, {"--optimizer-sharding", "zero1", "--traffic", "dlrm=tables:4,dim:32,batch:40"}));
    EXPECT_EQ(sharded["replicas_identical"], true);
    EXPECT_NEAR(sharded["loss"].get<double>(), whole["loss"].get<double>(), 1e-3);
    EXPECT_EQ(sharded["traffic"]["dlrm"]["exchanges"], 16);
    EXPECT_EQ(sharded["traffic"]["dlrm"]["bytes_sent"], 16u * 2 * 4 * 32 * 40 * 4);
    EXPECT_LT(sharded["momentum_bytes"], whole["momentum_bytes"]);
  }
}

TEST(TrainParallel, ATolerantRunKeepsItsBuckets) {
  const json tolerant = results_by(
      "paraexpress", plus(kShortRun, {"--ranks", "2", "--tolerant", "q=2,deadline=20s", "--accumulate", "2"}));
  EXPECT_TRUE(tolerant["rebuilt_buckets"].is_null());
  EXPECT_EQ(tolerant["replicas_identical"], true);
}

}  // namespace
}  // namespace clustar::bench::trainer
