// Whole models by our CUDA kernels, on the emulated device: a step of each agrees with plain code as far as rounding
// lets it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "bench/trainer/graph/cuda/cuda_math.h"
#include "bench/trainer/graph/network.h"
#include "bench/trainer/graph/plain_math.h"
#include "bench/trainer/model.h"

#ifdef CLUSTAR_EMULATED_LIBCUDA
namespace clustar::bench::trainer::graph {
namespace {

using Floats = std::vector<float>;

struct ModelCase {
  const char* name;
  ModelOptions options;
  std::size_t batch = 3;
};
void PrintTo(const ModelCase& one, std::ostream* out) { *out << one.name; }

// What a batch makes of the model, and what it answers to another one afterwards.
struct Step {
  Floats outputs, gradients, evaluated;
};

struct Setting {
  Model model;
  std::size_t batch;
  std::vector<std::size_t> offsets;
  Floats parameters, x, other_x, dy;

  explicit Setting(const ModelCase& one) : model(*make_model(one.name, one.options)), batch(one.batch) {
    std::size_t at = 0;
    for (const std::size_t elements : model.tensor_elements()) {
      offsets.push_back(at);
      at += elements;
    }
    parameters.resize(at);
    PlainMath math;
    Network(model.graph, math, offsets, 1).initialise(parameters, 1);
    clustar::Rng rng(2);
    const bool text = model.data == DataKind::kText;
    const auto values = [&](std::size_t count) {
      Floats all(count);
      for (float& value : all) value = static_cast<float>(2 * rng.uniform() - 1);
      return all;
    };
    x = values(batch * model.graph.input().elements());
    other_x = values(x.size());
    dy = values(batch * model.graph.output().elements());
    if (!text) return;
    for (float& token : x) token = static_cast<float>(rng.below(model.classes));
    for (float& token : other_x) token = static_cast<float>(rng.below(model.classes));
  }

  Step step(DeviceMath& math, const Floats& by) const {
    Network network(model.graph, math, offsets, batch, 7);
    const Memory own = math.allocate(by.size());
    const Memory slopes = math.allocate(by.size());
    math.upload(own.get(), by.data(), by.size());
    Step result;
    const auto y = network.forward(own.get(), x.data(), batch);
    result.outputs.assign(y.begin(), y.end());
    network.backward(own.get(), dy, slopes.get(), [](std::size_t) {});
    result.gradients.resize(by.size());
    math.download(result.gradients.data(), slopes.get(), by.size());
    const auto answer = network.evaluate(own.get(), other_x.data(), batch);
    result.evaluated.assign(answer.begin(), answer.end());
    return result;
  }
};

// Of the distance to `from` in terms of its length.
double apart(const Floats& values, const Floats& from) {
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    distance += std::pow(double{values[i]} - double{from[i]}, 2);
    length += std::pow(double{from[i]}, 2);
  }
  return std::sqrt(distance / length);
}

class ModelsOnCuda : public ::testing::TestWithParam<ModelCase> {};

// How much rounding moves a model is its own, so the measure is what plain code makes of parameters that are a rounding
// apart: of most models 1e-6; of ResNet-50, whose batch norms divide by deviations of a few values, outputs are 1e-5
// and gradients 1e-2 apart, since a value that changes its sign changes what ReLU passes back.
TEST_P(ModelsOnCuda, AgreeWithPlainCodeAsFarAsRoundingLetsThem) {
  const Setting setting(GetParam());
  PlainMath plain;
  const Step expected = setting.step(plain, setting.parameters);
  Floats moved = setting.parameters;
  clustar::Rng rng(3);
  for (float& one : moved) one *= rng.below(2) == 0 ? 1 + 0x1p-23f : 1 - 0x1p-23f;
  const Step rounded = setting.step(plain, moved);
  auto cuda = CudaMath::open(CLUSTAR_EMULATED_LIBCUDA);
  ASSERT_TRUE(cuda) << cuda.error().message;
  const Step found = setting.step(**cuda, setting.parameters);
  const auto expect_close = [&](const Floats& of, const Floats& from, const Floats& of_moved, const char* what) {
    const double distance = apart(of, from);
    const double by_rounding = apart(of_moved, from);
    EXPECT_LT(distance, 4 * by_rounding) << what;
    EXPECT_LT(by_rounding, 0.05) << what << ": nothing would be proven";
  };
  expect_close(found.outputs, expected.outputs, rounded.outputs, "outputs");
  expect_close(found.gradients, expected.gradients, rounded.gradients, "gradients");
  expect_close(found.evaluated, expected.evaluated, rounded.evaluated, "evaluation");
}

const std::vector<ModelCase> kModels{
    {"cnn", {.width_divisor = 4}},
    {"gpt", {.width_divisor = 8}},
    {"alexnet", {.image_size = 63, .classes = 10, .width_divisor = 16}},
    {"vgg16", {.image_size = 32, .classes = 10, .width_divisor = 16}},
    {"resnet50", {.image_size = 64, .classes = 10, .width_divisor = 16}, 8},
};
INSTANTIATE_TEST_SUITE_P(All, ModelsOnCuda, ::testing::ValuesIn(kModels));

}  // namespace
}  // namespace clustar::bench::trainer::graph
#endif
