// `clustar train --precision` in several processes: what goes over real transports, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::uint64_t kParameters = 669'706;  // of the MLP

void expect_halves(const json& halves, const json& whole, const char* precision) {
  EXPECT_EQ(halves["precision"], precision);
  EXPECT_EQ(halves["gradient_bytes"], 2 * kParameters);
  EXPECT_EQ(halves["replicas_identical"], true);
  EXPECT_NEAR(halves["bytes_sent"].get<double>(), 0.5 * whole["bytes_sent"].get<double>(),
              0.01 * whole["bytes_sent"].get<double>());
  EXPECT_NEAR(halves["loss"].get<double>(), whole["loss"].get<double>(), 0.05 * whole["loss"].get<double>());
}

#ifdef CLUSTAR_PLUGIN
json by_plugin(const Words& more) {
  return results_by("proxy", plus(plus(kShortRun, {"--plugin", CLUSTAR_PLUGIN}), more));
}

TEST(TrainPrecision, HalvesTheBytesOfRingsAndAllToAlls) {
  for (const Words& way : {Words{"--ranks", "4"}, Words{"--ranks", "3", "--all-reduce", "all-to-all"}}) {
    const json whole = by_plugin(way);
    EXPECT_EQ(whole["precision"], "f32");
    EXPECT_TRUE(whole["loss_scale"].is_null());
    const json bf16 = by_plugin(plus(way, {"--precision", "bf16"}));
    expect_halves(bf16, whole, "bf16");
    EXPECT_TRUE(bf16["loss_scale"].is_null());
    const json f16 = by_plugin(plus(way, {"--precision", "f16", "--loss-scale", "dynamic=1024"}));
    expect_halves(f16, whole, "f16");
    EXPECT_EQ(f16["loss_scale"], json({{"scaling", "dynamic"},
                                       {"initial", 1024.0},
                                       {"final", 1024.0},
                                       {"interval", 2000},
                                       {"skipped_steps", 0}}));
  }
}

// Shards are cut where a ring cuts, as with float32.
TEST(TrainPrecision, ShardedOptimisersHaveTheSameBits) {
  const Words common{"--ranks", "4", "--precision", "f16"};
  const json whole = by_plugin(common);
  const json sharded = by_plugin(plus(common, {"--optimizer-sharding", "zero1", "--overlap-forward"}));
  EXPECT_EQ(sharded["parameters_digest"], whole["parameters_digest"]);
  EXPECT_EQ(sharded["loss_scale"], whole["loss_scale"]);
  EXPECT_EQ(sharded["replicas_identical"], true);
}

TEST(TrainPrecision, ToleratedLossStaysWithinItsBound) {
  setenv("CLUSTAR_LOSS_WARMUP", "0", 1);
  for (const Words& way : {Words{}, Words{"--all-reduce", "all-to-all"}}) {
    const json lossy = by_plugin(
        plus({"--ranks", "3", "--precision", "f16", "--loss-tolerance", "0.05", "--inject-loss", "0.02"}, way));
    EXPECT_EQ(lossy["replicas_identical"], true);
    EXPECT_GT(lossy["missing_bytes"], 0);
    for (const json& rank : lossy["per_rank"]) {
      EXPECT_LE(rank["missing_bytes"].get<double>(), 0.05 * rank["eligible_bytes"].get<double>());
    }
    EXPECT_LT(lossy["per_epoch"]["loss"].back(), lossy["per_epoch"]["loss"].front());
    if (!way.empty()) {
      const double of_contributions = 2 * lossy["missing_contributions"].get<double>();
      EXPECT_GE(of_contributions, lossy["missing_bytes"].get<double>());
      EXPECT_LE(of_contributions, 1.1 * lossy["missing_bytes"].get<double>());
    }
  }
  unsetenv("CLUSTAR_LOSS_WARMUP");
}

TEST(TrainPrecision, AScaleThatIsTooLargeIsFoundOutAndSaid) {
  const TemporaryDirectory dir;
  const Outcome outcome = run_clustar(
      train_by("proxy", plus(kShortRun, {"--plugin", CLUSTAR_PLUGIN, "--ranks", "2", "--precision", "f16",
                                         "--loss-scale", "dynamic=16777216", "--json", dir.file("r.json")})));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json scale = dir.read_json("r.json").at("results").at("loss_scale");
  const auto skipped = scale["skipped_steps"].get<int>();
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 8);
  EXPECT_EQ(scale["final"].get<double>() * (1 << skipped), 16777216.0);
  EXPECT_THAT(outcome.out, HasSubstr("dynamic loss scale"));
  EXPECT_THAT(outcome.out, HasSubstr(std::to_string(skipped) + " of 8 steps skipped"));
}
#endif

TEST(TrainPrecision, ByParaExpress) {
  for (const char* plan : {"ring", "direct"}) {
    const Words common = plus(kShortRun, {"--ranks", "3", "--plan", plan});
    const json whole = results_by("paraexpress", common);
    for (const char* precision : {"bf16", "f16"}) {
      const json halves = results_by("paraexpress", plus(common, {"--precision", precision}));
      expect_halves(halves, whole, precision);
      EXPECT_EQ(halves["plans"][0]["bytes"], 2 * kParameters);
    }
  }
}

TEST(TrainPrecision, ReplaysSendGradientsOfTheType) {
  const Words replay{"train",        "--no-progress",
                     "--collective", "paraexpress",
                     "--plan",       "ring",
                     "--ranks",      "2",
                     "--model",      "mlp",
                     "--compute",    "estimate=v100",
                     "--time-scale", "1",
                     "--epochs",     "1",
                     "--examples",   "64",
                     "--batch",      "32",
                     "--precision",  "f16"};
  const TemporaryDirectory dir;
  const Outcome outcome = run_clustar(plus(replay, {"--json", dir.file("r.json")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json results = dir.read_json("r.replay-t1-b1.json").at("results");
  EXPECT_EQ(results["gradient_bytes"], 2 * kParameters);
  EXPECT_EQ(results["bytes_sent"], 2u * 2 * 2 * kParameters) << "two steps of two ranks";
}

TEST(TrainPrecision, IsDescribed) {
  for (const auto& [precision, bytes] : {std::pair("f32", "2,678,824 (f32)"), std::pair("bf16", "1,339,412 (bf16)"),
                                         std::pair("f16", "1,339,412 (f16)")}) {
    const Outcome outcome = run_clustar({"train", "--model", "mlp", "--describe", "--precision", precision});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(bytes));
  }
}

TEST(TrainPrecision, WhatDoesNotFitIsRefused) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--precision", "f8"}, "f32, bf16, f16"},
      {{"--loss-scale", "dynamic"}, "add --precision f16 or bf16"},
      {{"--loss-scale-interval", "10"}, "add --precision f16 or bf16"},
      {{"--precision", "f16", "--loss-scale", "0.1"}, "dynamic=SCALE or SCALE, from 1 to 16777216"},
      {{"--precision", "f16", "--loss-scale", "8", "--loss-scale-interval", "10"}, "add --loss-scale dynamic"},
      {{"--precision", "f16", "--codec", "topk"}, "codecs encode float32 gradients"},
      {{"--precision", "bf16", "--ranks", "3", "--collective", "ps"}, "allowed: proxy, nccl and paraexpress"},
      {{"--precision", "bf16", "--ranks", "3", "--collective", "paraexpress", "--tolerant", "q=2"}, "--tolerant keeps"},
      {{"--precision", "f16", "--ranks", "3", "--all-reduce", "all-to-all", "--missing", "residual"},
       "allowed: rescale and zero"}};
  for (const auto& [more, said] : cases) {
    const Outcome outcome = run_clustar(plus({"train", "--plugin", CLUSTAR_ANY_PLUGIN}, more));
    EXPECT_EQ(outcome.status, 2) << more.back();
    EXPECT_THAT(outcome.err, HasSubstr(said));
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
