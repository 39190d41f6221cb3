// `clustar train --device cuda` as a user runs it, by the driver of the emulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Outcome start_training(const Words& arguments) { return run_clustar(plus({"train"}, arguments)); }

TEST(TrainOnCuda, WrongUsageSaysWhatIsAllowed) {
  const std::vector<std::pair<Words, const char*>> wrong{
      {{"--device", "tpu"}, "--device"},
      {{"--cuda-driver", "libcuda.so.1"}, "--cuda-driver is of --device cuda"},
      {{"--update", "device"}, "--update is of --device cuda"},
      {{"--device", "cuda", "--update", "device", "--accumulate", "2"}, "--update device: micro-batches are added up"},
      {{"--device", "cuda", "--update", "device", "--ranks", "2"}, "only --collective nccl sums in a GPU's memory"},
      {{"--device", "cuda", "--compute", "estimate=v100"}, "--device cuda computes, and --compute replays"}};
  for (const auto& [words, message] : wrong) {
    const Outcome outcome = start_training(words);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(TrainOnCuda, WithoutADriverItSaysSo) {
  const Outcome outcome = start_training(
      {"--model", "lr", "--examples", "200", "--epochs", "1", "--device", "cuda", "--cuda-driver", "libnone.so"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("--device cuda: cannot open the CUDA driver 'libnone.so'"), HasSubstr("--device cpu")));
}

#ifdef CLUSTAR_EMULATED_LIBCUDA
const Words kOnCuda{"--device", "cuda", "--cuda-driver", CLUSTAR_EMULATED_LIBCUDA};

json results_of_training(const Words& arguments) {
  const Outcome outcome = start_training(plus(arguments, {"--quiet", "--json", "-"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? json::parse(outcome.out).at("results") : json{};
}

// Trains on both: losses agree. Returns what training on the device gave.
json expect_agreement(const Words& run) {
  SCOPED_TRACE(run[1]);
  const json cpu = results_of_training(run);
  const json cuda = results_of_training(plus(run, kOnCuda));
  if (!cpu.contains("loss") || !cuda.contains("loss")) return {};
  EXPECT_NEAR(cuda["loss"].get<double>(), cpu["loss"].get<double>(), 1e-5);
  EXPECT_NEAR(cuda["held_out_loss"].get<double>(), cpu["held_out_loss"].get<double>(), 1e-5);
  EXPECT_EQ(cuda["compute_device"], json({{"kind", "cuda"}, {"emulated", true}, {"math", "own kernels"}}));
  EXPECT_EQ(cpu["compute_device"], json({{"kind", "cpu"}, {"emulated", false}}));
  EXPECT_THAT(cuda["gemm"].get<std::string>(), HasSubstr("emulated"));
  return cuda;
}

void expect_loss_falls(const json& results) {
  ASSERT_TRUE(results.contains("per_epoch"));
  EXPECT_LT(results["loss"].get<double>(), results["per_epoch"]["loss"][0].get<double>());
}

TEST(TrainOnCuda, DigitsAgreeWithTheProcessorToRounding) {
  for (const Words& model : {Words{"--model", "lr"}, Words{"--model", "mlp", "--width-divisor", "8"},
                             Words{"--model", "cnn", "--width-divisor", "4"}}) {
    expect_loss_falls(
        expect_agreement(plus(model, {"--examples", "100", "--epochs", "2", "--batch", "40", "--lr", "0.05"})));
  }
}

// Of one rank nothing is summed. The emulated device multiplies and adds as the processor does, so the bits are the
// same.
TEST(TrainOnCuda, UpdatesInTheMemoryOfEither) {
  const Words run = plus(
      {"--model", "mlp-small", "--examples", "300", "--epochs", "2", "--momentum", "0.9", "--weight-decay", "0.001"},
      kOnCuda);
  const json device = results_of_training(run);
  const json host = results_of_training(plus(run, {"--update", "host"}));
  EXPECT_EQ(device["update"], "device");
  EXPECT_EQ(host["update"], "host");
  EXPECT_EQ(device["parameters_digest"], host["parameters_digest"]);
  EXPECT_EQ(device["loss"], host["loss"]);
  EXPECT_EQ(device["accuracy"], host["accuracy"]);
}

TEST(TrainOnCuda, GoesOnFromACheckpointWithTheSameBits) {
  const TemporaryDirectory folder;
  const Words run = plus({"--model", "mlp-small", "--examples", "300", "--checkpoint", folder.file("at")}, kOnCuda);
  const json whole = results_of_training(plus(run, {"--epochs", "3"}));
  results_of_training(plus(run, {"--epochs", "1"}));
  const json rest = results_of_training(plus(run, {"--epochs", "3", "--resume", folder.file("at")}));
  EXPECT_EQ(rest["update"], "device");
  EXPECT_EQ(rest["parameters_digest"], whole["parameters_digest"]);
}

TEST(TrainOnCuda, ATransformerAgreesWithTheProcessorAndRepeatsItsBits) {
  const Words run{"--model", "gpt", "--width-divisor", "16", "--examples", "10", "--epochs", "2", "--lr", "0.05"};
  const json once = expect_agreement(run);
  expect_loss_falls(once);
  const json again = results_of_training(plus(run, kOnCuda));
  ASSERT_TRUE(once.contains("parameters_digest") && again.contains("parameters_digest"));
  EXPECT_EQ(again["parameters_digest"], once["parameters_digest"]);
  EXPECT_EQ(again["loss"], once["loss"]);
}

const Words kFewImages{"--width-divisor", "16", "--classes", "4", "--examples", "10", "--epochs", "2"};

// With dropout, which drops the same elements on both.
TEST(TrainOnCuda, NetworksOfImagesAgreeWithTheProcessorToRounding) {
  expect_agreement(plus({"--model", "alexnet", "--image-size", "63", "--lr", "0.02"}, kFewImages));
  expect_agreement(plus({"--model", "vgg16", "--image-size", "32", "--lr", "0.02"}, kFewImages));
}

// Of a batch of eight, batch norm makes much of a rounding (tests/trainer/graph/models_test.cc): the first step's loss
// agrees, and what is made of its gradients agrees less.
TEST(TrainOnCuda, AResidualNetworkLearnsAsOnTheProcessor) {
  const Words run = plus({"--model", "resnet50", "--image-size", "64", "--lr", "0.003"}, kFewImages);
  const json cpu = results_of_training(run);
  const json cuda = results_of_training(plus(run, kOnCuda));
  ASSERT_TRUE(cpu.contains("per_epoch") && cuda.contains("per_epoch"));
  EXPECT_NEAR(cuda["per_epoch"]["loss"][0].get<double>(), cpu["per_epoch"]["loss"][0].get<double>(), 1e-4);
  EXPECT_NEAR(cuda["loss"].get<double>(), cpu["loss"].get<double>(), 0.02);
  expect_loss_falls(cuda);
}

TEST(TrainOnCuda, RoundsTo16BitsAsTheProcessorDoes) {
  const auto loss = [](const char* precision, const Words& device) {
    const json results =
        results_of_training(plus({"--model", "mlp", "--width-divisor", "8", "--examples", "100", "--epochs", "2",
                                  "--batch", "40", "--lr", "0.05", "--precision", precision},
                                 device));
    EXPECT_EQ(results.value("precision", ""), precision);
    return results.value("loss", 0.0);
  };
  const double whole = loss("f32", kOnCuda);
  for (const char* precision : {"bf16", "f16"}) {
    const double cuda = loss(precision, kOnCuda);
    EXPECT_NEAR(cuda, loss(precision, {}), 1e-6) << precision;
    EXPECT_NE(cuda, whole) << precision;
  }
}

TEST(TrainOnCuda, EveryLineSaysEmulated) {
  const Outcome outcome = start_training(plus({"--model", "lr", "--examples", "200", "--epochs", "2"}, kOnCuda));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out + outcome.err);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    ++count;
    EXPECT_THAT(line, HasSubstr("emulated"));
  }
  EXPECT_GT(count, 10);
}

#ifdef CLUSTAR_PLUGIN
// Gradients come from the device and are summed over the plugin; lost bytes change a sum, and all replicas alike.
TEST(TrainOnCuda, ReplicasAreAlikeWithAndWithoutLoss) {
  const Words run =
      plus({"--model", "mlp-small", "--ranks", "2", "--examples", "400", "--epochs", "1", "--plugin", CLUSTAR_PLUGIN},
           kOnCuda);
  setenv("CLUSTAR_LOSS_WARMUP", "0", 1);  // otherwise the first 100 all-reduces stay reliable
  for (const Words& more : {Words{}, Words{"--loss-tolerance", "0.01", "--inject-loss", "0.01"},
                            Words{"--loss-tolerance", "0.02", "--inject-loss", "0.02"}}) {
    const json results = results_of_training(plus(run, more));
    ASSERT_TRUE(results.contains("replicas_identical"));
    EXPECT_EQ(results["replicas_identical"], true);
    EXPECT_EQ(results["compute_device"]["emulated"], true);
    EXPECT_EQ(results["eligible_bytes"] > 0, !more.empty());
  }
  unsetenv("CLUSTAR_LOSS_WARMUP");
}
#endif
#endif

}  // namespace
}  // namespace clustar::bench::trainer
