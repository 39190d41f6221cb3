// `clustar train --device cuda --device-math` as a user runs it, by emulated libraries on the emulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Outcome start_run(const Words& arguments) { return run_clustar(plus({"train"}, arguments)); }

TEST(TrainWithLibraries, WrongUsageSaysWhatIsAllowed) {
  const std::vector<std::pair<Words, const char*>> wrong{
      {{"--device-math", "fast"}, "--device-math"},
      {{"--device-math", "libraries"}, "--cublas and --cudnn are of --device cuda"},
      {{"--cublas", "libcublas.so"}, "--cublas and --cudnn are of --device cuda"},
      {{"--device", "cuda", "--device-math", "kernels", "--cudnn", "none"}, "allowed with them: auto, libraries"}};
  for (const auto& [words, message] : wrong) {
    const Outcome outcome = start_run(words);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

#ifdef CLUSTAR_EMULATED_CUBLAS
const Words kDevice{"--device", "cuda", "--cuda-driver", CLUSTAR_EMULATED_LIBCUDA};
const Words kCublas = plus(kDevice, {"--device-math", "libraries", "--cublas", CLUSTAR_EMULATED_CUBLAS});
const Words kBoth = plus(kCublas, {"--cudnn", CLUSTAR_EMULATED_CUDNN});

json results_of_run(const Words& arguments) {
  const Outcome outcome = start_run(plus(arguments, {"--quiet", "--json", "-"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? json::parse(outcome.out).at("results") : json{};
}

void expect_same_losses(const json& one, const json& other, const char* what) {
  ASSERT_TRUE(one.contains("loss") && other.contains("loss")) << what;
  for (const char* loss : {"loss", "held_out_loss"}) {
    EXPECT_NEAR(one[loss].get<double>(), other[loss].get<double>(), 1e-5) << what;
  }
}

class ModelsByLibraries : public ::testing::TestWithParam<Words> {};

TEST_P(ModelsByLibraries, AgreeWithKernelsAndTheProcessorAndRepeatTheirBits) {
  const Words run = plus(GetParam(), {"--epochs", "2"});
  const json cpu = results_of_run(run);
  const json kernels = results_of_run(plus(run, kDevice));
  const json cublas = results_of_run(plus(run, kCublas));
  const json both = results_of_run(plus(run, kBoth));
  expect_same_losses(cublas, cpu, "cuBLAS, processor");
  expect_same_losses(cublas, kernels, "cuBLAS, kernels");
  expect_same_losses(both, cpu, "cuDNN, processor");
  EXPECT_EQ(both["compute_device"]["math"], "cublas 13.0, cudnn 9.0");
  EXPECT_EQ(cublas["compute_device"]["math"], "cublas 13.0");
  EXPECT_EQ(kernels["compute_device"]["math"], "own kernels");
  EXPECT_THAT(both["gemm"].get<std::string>(), AllOf(HasSubstr("cublas 13.0, cudnn 9.0"), HasSubstr("emulated")));
  const json again = results_of_run(plus(run, kBoth));
  EXPECT_EQ(again["parameters_digest"], both["parameters_digest"]);
  EXPECT_NE(both["parameters_digest"], kernels["parameters_digest"]);  // another order of sums: it was the libraries
}

INSTANTIATE_TEST_SUITE_P(All, ModelsByLibraries,
                         ::testing::Values(Words{"--model", "lr", "--examples", "100", "--batch", "40", "--lr", "0.05"},
                                           Words{"--model", "mlp", "--width-divisor", "8", "--examples", "100",
                                                 "--batch", "40", "--lr", "0.05"},
                                           Words{"--model", "cnn", "--width-divisor", "4", "--examples", "100",
                                                 "--batch", "40", "--lr", "0.05"},
                                           Words{"--model", "gpt", "--width-divisor", "16", "--examples", "10", "--lr",
                                                 "0.05"},
                                           Words{"--model", "vgg16", "--width-divisor", "16", "--classes", "4",
                                                 "--examples", "10", "--image-size", "32", "--lr", "0.02"}));

TEST(TrainWithLibraries, AWrongLibraryIsNamed) {
  const Words run = plus({"--model", "lr", "--examples", "100", "--epochs", "1"}, kDevice);
  const std::vector<std::pair<Words, const char*>> wrong{
      {{"--cublas", "libnone.so"}, "--device cuda: cannot open cuBLAS: libnone.so"},
      {{"--cublas", "libc.so.6"}, "'libc.so.6' has no cublasCreate_v2"},
      {{"--cublas", CLUSTAR_EMULATED_CUBLAS, "--cudnn", "libc.so.6"}, "'libc.so.6' has no cudnnCreate"},
      {{"--device-math", "libraries"}, "name them by --cublas"}};
  for (const auto& [words, message] : wrong) {
    const Outcome outcome = start_run(plus(run, words));
    EXPECT_EQ(outcome.status, 1) << message;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(message), HasSubstr("--device-math kernels")));
  }
}

TEST(TrainWithLibraries, ACallThatFailsInTrainingEndsTheRunAndIsNamed) {
  const Words run = plus({"--model", "cnn", "--width-divisor", "4", "--examples", "100", "--epochs", "2"}, kBoth);
  for (const auto& [fault, message] :
       {std::pair{"cublasSgemm_v2:5:13", "cuBLAS: emulated CUBLAS_STATUS_EXECUTION_FAILED (13) in cublasSgemm_v2 of "},
        std::pair{"cudnnConvolutionBackwardFilter:2:5000",
                  "CUDNN_STATUS_EXECUTION_FAILED (5000) in cudnnConvolutionBackwardFilter of conv"}}) {
    setenv("EMULATED_LIBRARY_FAULT", fault, 1);
    for (const Words& ranks : {Words{}, Words{"--ranks", "2"}}) {
      const Outcome outcome = start_run(plus(run, ranks));
      EXPECT_EQ(outcome.status, 1) << fault;
      EXPECT_THAT(outcome.err, HasSubstr(message));
      EXPECT_LT(outcome.seconds, 60);
    }
    unsetenv("EMULATED_LIBRARY_FAULT");
  }
}
#endif

}  // namespace
}  // namespace clustar::bench::trainer
