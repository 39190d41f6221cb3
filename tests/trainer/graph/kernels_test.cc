// Every kernel against its definition in double precision, and its gradients against finite differences of that: of the
// best mathematics of this build, of plain code, and of our CUDA kernels
// on the emulated device, alone and with the emulated cuBLAS and cuDNN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <utility>

#include "bench/trainer/graph/cuda/cuda_math.h"
#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/graph/plain_math.h"
#include "tests/trainer/graph/reference.h"

namespace clustar::bench::trainer::graph {
namespace {

using Floats = std::vector<float>;

struct KernelCase {
  Op op;
  Shape in;
  std::size_t batch = 2;
};

void PrintTo(const KernelCase& one, std::ostream* out) {
  *out << label(one.op) << " of " << one.in.rows << "x" << one.in.columns << "x" << one.in.channels;
}

Doubles as_doubles(const Floats& values) { return {values.begin(), values.end()}; }

// What lies in the host's memory, in the device's for one call.
class Mirror {
 public:
  Mirror(DeviceMath& math, Floats& host) : math_(math), host_(host), memory_(math.allocate(host.size())) {
    math.upload(memory_.get(), host.data(), host.size());
  }
  float* get() const { return memory_.get(); }
  void bring_back() const { math_.download(host_.data(), memory_.get(), host_.size()); }

 private:
  DeviceMath& math_;
  Floats& host_;
  Memory memory_;
};

// A kernel with operands for one batch.
struct Bench {
  std::size_t batch;
  std::vector<Shape> shapes;
  std::vector<Floats> x, dx, parameters, gradients, states;
  Floats y, dy, saved, scratch;
  std::unique_ptr<DeviceMath> math;
  std::unique_ptr<Kernel> kernel;

  Bench(const KernelCase& one, std::unique_ptr<DeviceMath> by, std::uint64_t seed = 7)
      : batch(one.batch), math(std::move(by)) {
    clustar::Rng rng(seed);
    const auto values = [&](std::size_t count) {
      Floats all(count);
      for (float& value : all) value = static_cast<float>(2 * rng.uniform() - 1);
      return all;
    };
    const std::size_t inputs = std::holds_alternative<Add>(one.op) ? 2 : 1;
    shapes.assign(inputs, one.in);
    const Shape out = output_shape(one.op, shapes);
    kernel = math->kernel(one.op, shapes, out);
    for (std::size_t i = 0; i < inputs; ++i) x.push_back(values(batch * one.in.elements()));
    if (const auto* embedding = std::get_if<Embedding>(&one.op)) {
      for (float& token : x[0]) token = static_cast<float>(rng.below(embedding->vocabulary));
    }
    dx.assign(inputs, Floats(batch * one.in.elements(), 77.0f));
    for (const TensorSpec& tensor : tensors(one.op, one.in)) {
      parameters.push_back(values(tensor.elements));
      gradients.emplace_back(tensor.elements, 77.0f);
    }
    for (const StateSpec& state : graph::states(one.op, one.in)) states.emplace_back(state.elements, state.initial);
    y.assign(batch * out.elements(), 77.0f);
    dy = values(y.size());
    saved.assign(kernel->saved(batch), 77.0f);
    scratch.assign(kernel->scratch(batch), 77.0f);
  }

  std::vector<Mirror> mirrors(std::vector<Floats>& all) const {
    std::vector<Mirror> result;
    for (Floats& one : all) result.emplace_back(*math, one);
    return result;
  }
  template <class Float>
  static std::vector<Float*> pointers(const std::vector<Mirror>& all) {
    std::vector<Float*> result;
    for (const Mirror& one : all) result.push_back(one.get());
    return result;
  }

  void forward(bool training = true, std::uint64_t draw = 1) {
    const auto device_x = mirrors(x);
    const auto device_parameters = mirrors(parameters);
    const auto device_states = mirrors(states);
    const Mirror device_y(*math, y);
    const Mirror device_saved(*math, saved);
    const Mirror device_scratch(*math, scratch);
    const auto inputs = pointers<const float>(device_x);
    const auto own = pointers<const float>(device_parameters);
    const auto kept = pointers<float>(device_states);
    kernel->forward({.batch = batch,
                     .training = training,
                     .draw = draw,
                     .inputs = inputs,
                     .output = device_y.get(),
                     .parameters = own,
                     .states = kept,
                     .saved = training ? device_saved.get() : nullptr,
                     .scratch = device_scratch.get()});
    device_y.bring_back();
    device_saved.bring_back();
    for (const Mirror& state : device_states) state.bring_back();
  }

  void backward(bool wanted = true) {
    const auto device_x = mirrors(x);
    const auto device_parameters = mirrors(parameters);
    const auto device_dx = mirrors(dx);
    const auto device_gradients = mirrors(gradients);
    const Mirror device_y(*math, y);
    const Mirror device_dy(*math, dy);
    const Mirror device_saved(*math, saved);
    const Mirror device_scratch(*math, scratch);
    const auto inputs = pointers<const float>(device_x);
    const auto own = pointers<const float>(device_parameters);
    auto targets = pointers<float>(device_dx);
    if (!wanted) std::fill(targets.begin(), targets.end(), nullptr);
    const auto slopes = pointers<float>(device_gradients);
    const BackwardCall call{.batch = batch,
                            .inputs = inputs,
                            .output = device_y.get(),
                            .output_gradient = device_dy.get(),
                            .input_gradients = targets,
                            .parameters = own,
                            .gradients = slopes,
                            .saved = device_saved.get(),
                            .scratch = device_scratch.get()};
    kernel->backward_parameters(call);
    kernel->backward_inputs(call);
    for (const Mirror& one : device_dx) one.bring_back();
    for (const Mirror& one : device_gradients) one.bring_back();
  }
};

// sum of dy y, whose gradients backward has to find.
double weighted_sum(const Op& op, const Bench& bench, const std::vector<Doubles>& x,
                    const std::vector<Doubles>& parameters) {
  const Doubles y = reference(op, bench.shapes, bench.batch, x, parameters);
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += double{bench.dy[i]} * y[i];
  return sum;
}

// The GPU is an emulated one, if this build has that.
std::vector<std::unique_ptr<DeviceMath>> maths() {
  std::vector<std::unique_ptr<DeviceMath>> all;
  all.push_back(make_cpu_math());
  all.push_back(std::make_unique<PlainMath>());
#ifdef CLUSTAR_EMULATED_LIBCUDA
  for (const cuda::MathOptions& options :
       {cuda::MathOptions{}, cuda::MathOptions{cuda::MathChoice::kLibraries, CLUSTAR_EMULATED_CUBLAS},
        cuda::MathOptions{cuda::MathChoice::kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_EMULATED_CUDNN}}) {
    auto cuda = CudaMath::open(CLUSTAR_EMULATED_LIBCUDA, 0, options);
    EXPECT_TRUE(cuda) << cuda.error().message;
    if (cuda) all.push_back(std::move(*cuda));
  }
#endif
  return all;
}

void expect_near(const Floats& values, const Doubles& expected, const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 5e-5 * (1 + std::abs(expected[i]))) << what << " at " << i;
  }
}

class Kernels : public ::testing::TestWithParam<KernelCase> {};

TEST_P(Kernels, AgreeWithTheDefinitionAndItsFiniteDifferences) {
  const KernelCase& one = GetParam();
  for (auto& math : maths()) {
    Bench bench(one, std::move(math));
    SCOPED_TRACE(bench.math->name());
    bench.forward();
    bench.backward();
    std::vector<Doubles> x, parameters;
    for (const Floats& values : bench.x) x.push_back(as_doubles(values));
    for (const Floats& values : bench.parameters) parameters.push_back(as_doubles(values));
    expect_near(bench.y, reference(one.op, bench.shapes, bench.batch, x, parameters), "output");
    const auto slopes = [&](Doubles& of) {
      constexpr double kStep = 1e-5;
      Doubles result;
      for (double& value : of) {
        const double before = value;
        value = before + kStep;
        const double above = weighted_sum(one.op, bench, x, parameters);
        value = before - kStep;
        const double below = weighted_sum(one.op, bench, x, parameters);
        value = before;
        result.push_back((above - below) / (2 * kStep));
      }
      return result;
    };
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      expect_near(bench.gradients[i], slopes(parameters[i]), "gradient of parameter " + std::to_string(i));
    }
    if (std::holds_alternative<Embedding>(one.op)) continue;  // tokens are numbers of words
    for (std::size_t i = 0; i < x.size(); ++i) expect_near(bench.dx[i], slopes(x[i]), "gradient of input");
  }
}

TEST_P(Kernels, RepeatBitForBitAndDoWithoutInputGradients) {
  for (auto& math : maths()) {
    Bench bench(GetParam(), std::move(math));
    bench.forward();
    bench.backward();
    const auto y = bench.y;
    const auto gradients = bench.gradients;
    for (Floats& values : bench.gradients) std::fill(values.begin(), values.end(), 55.0f);
    std::fill(bench.scratch.begin(), bench.scratch.end(), 55.0f);
    bench.forward();
    bench.backward(false);
    EXPECT_EQ(bench.y, y);
    EXPECT_EQ(bench.gradients, gradients);
  }
}

const std::vector<KernelCase> kCases{
    {Linear{5}, {1, 1, 7}, 3},
    {Linear{.outputs = 3, .bias = false}, {2, 3, 2}},
    {Linear{.outputs = 3, .per_position = true}, {3, 2, 4}},
    {Convolution{.filters = 1}, {1, 1, 1}, 1},
    {Convolution{.filters = 3, .kernel = 2}, {3, 5, 2}, 3},
    {Convolution{.filters = 5, .kernel = 4}, {7, 4, 3}},
    {Convolution{.filters = 4, .kernel = 3, .stride = 2, .padding = 1}, {5, 4, 3}},
    {Convolution{.filters = 3, .kernel = 1, .stride = 2, .bias = false}, {5, 5, 4}},
    {Convolution{.filters = 2, .kernel = 7, .stride = 2, .padding = 3}, {6, 6, 3}},
    {Convolution{.filters = 16, .kernel = 3, .padding = 1}, {3, 3, 16}, 1},
    {Convolution{.filters = 2, .kernel = 11, .stride = 4, .padding = 2}, {15, 15, 1}, 1},
    {Convolution{.filters = 2, .kernel = 5, .padding = 2}, {2, 1, 3}},
    {MaxPool{}, {4, 6, 3}},
    {MaxPool{.window = 3, .stride = 2}, {7, 8, 2}},
    {MaxPool{.window = 3, .stride = 2, .padding = 1}, {6, 5, 16}},
    {MaxPool{.window = 2, .stride = 2}, {5, 5, 1}},
    {AdaptiveAveragePool{1, 1}, {3, 4, 5}},
    {AdaptiveAveragePool{6, 6}, {1, 1, 3}},
    {AdaptiveAveragePool{2, 3}, {5, 5, 2}},
    {AdaptiveAveragePool{7, 7}, {2, 2, 2}},
    {BatchNorm{}, {3, 2, 5}, 4},
    {BatchNorm{}, {2, 2, 16}, 3},
    {LayerNorm{}, {3, 1, 8}},
    {Relu{}, {2, 3, 5}},
    {Gelu{}, {2, 3, 5}},
    {Add{}, {2, 3, 4}},
    {Embedding{6, 4}, {5, 1, 1}, 3},
    {Attention{2}, {5, 1, 12}},
    {Attention{1}, {4, 1, 9}, 3},
};
INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(kCases));

// Sums over so many rows take a GPU's kernels more than one stage.
TEST(ManyRows, AreSummedAsByPlainCode) {
  for (const KernelCase& one :
       {KernelCase{Linear{.outputs = 5, .per_position = true}, {700, 1, 3}},
        KernelCase{Convolution{.filters = 3, .kernel = 1}, {30, 35, 2}}, KernelCase{BatchNorm{}, {25, 21, 33}},
        KernelCase{LayerNorm{}, {1025, 1, 4}}, KernelCase{Embedding{6, 4}, {3, 1, 1}, 1500}}) {
    Bench plain(one, std::make_unique<PlainMath>());
    plain.forward();
    plain.backward();
    for (auto& math : maths()) {
      Bench bench(one, std::move(math));
      SCOPED_TRACE(label(one.op) + " by " + bench.math->name());
      bench.forward();
      bench.backward();
      expect_near(bench.y, as_doubles(plain.y), "output");
      for (std::size_t i = 0; i < bench.gradients.size(); ++i) {
        expect_near(bench.gradients[i], as_doubles(plain.gradients[i]), "gradient of parameter " + std::to_string(i));
      }
      expect_near(bench.dx[0], as_doubles(plain.dx[0]), "gradient of input");
    }
  }
}

TEST(MaxPool, OfEqualValuesTheFirstGetsTheGradient) {
  for (auto& math : maths()) {
    Bench bench({MaxPool{}, {2, 4, 1}, 1}, std::move(math));
    bench.x[0] = {1, 2, -1, -1, 4, 4, -3, -1};
    bench.dy = {10, 20};
    bench.forward();
    bench.backward();
    EXPECT_THAT(bench.y, ::testing::ElementsAre(4, -1));
    EXPECT_THAT(bench.dx[0], ::testing::ElementsAre(0, 0, 20, 0, 10, 0, 0, 0));
  }
}

// As torch.nn.BatchNorm2d: momentum 0.1, the running variance unbiased, and evaluation by what is running.
TEST(BatchNorm, KeepsRunningStatisticsAndEvaluatesByThem) {
  for (auto& math : maths()) {
    Bench bench({BatchNorm{}, {2, 1, 1}, 2}, std::move(math));
    bench.parameters = {{2}, {5}};
    bench.x[0] = {1, 2, 3, 6};  // mean 3, unbiased variance 14/3
    bench.forward();
    EXPECT_NEAR(bench.states[0][0], 0.3, 1e-6);
    EXPECT_NEAR(bench.states[1][0], 0.9 + 1.4 / 3, 1e-6);
    const auto states = bench.states;
    bench.forward(false);
    EXPECT_EQ(bench.states, states);
    for (std::size_t i = 0; i < 4; ++i) {
      const double expected =
          (double{bench.x[0][i]} - double{states[0][0]}) / std::sqrt(double{states[1][0]} + 1e-5) * 2 + 5;
      EXPECT_NEAR(bench.y[i], expected, 1e-5);
    }
  }
}

TEST(Dropout, DropsItsShareScalesTheRestAndForgetsWhenEvaluating) {
  for (auto& math : maths()) {
    Bench bench({Dropout{0.25}, {1, 1, 10001}, 1}, std::move(math));
    bench.forward(true, 3);
    bench.backward();
    const auto dropped = std::count(bench.y.begin(), bench.y.end(), 0.0f);
    EXPECT_NEAR(static_cast<double>(dropped), 2500, 150);
    for (std::size_t i = 0; i < bench.y.size(); ++i) {
      ASSERT_TRUE(bench.y[i] == 0 || std::abs(bench.y[i] - bench.x[0][i] / 0.75f) < 1e-6) << i;
      ASSERT_EQ(bench.y[i] == 0, bench.dx[0][i] == 0) << i;
    }
    const auto y = bench.y;
    bench.forward(true, 3);
    EXPECT_EQ(bench.y, y);
    bench.forward(true, 4);
    EXPECT_NE(bench.y, y);
    bench.forward(false);
    EXPECT_EQ(bench.y, bench.x[0]);
  }
}

// So that a run drops the same on a GPU as on the processor.
TEST(Dropout, DropsTheSameByEveryMathematics) {
  const KernelCase one{Dropout{0.3}, {7, 11, 3}, 5};
  Bench plain(one, std::make_unique<PlainMath>());
  plain.forward(true, 0x123456789abcdef0);
  plain.backward();
  for (auto& math : maths()) {
    Bench bench(one, std::move(math));
    bench.forward(true, 0x123456789abcdef0);
    bench.backward();
    EXPECT_EQ(bench.y, plain.y) << bench.math->name();
    EXPECT_EQ(bench.dx, plain.dx) << bench.math->name();
  }
}

TEST(Attention, LooksAtNothingThatComesLater) {
  for (auto& math : maths()) {
    Bench bench({Attention{2}, {6, 1, 12}, 1}, std::move(math));
    bench.forward();
    const auto y = bench.y;
    for (std::size_t i = 4 * 12; i < bench.x[0].size(); ++i) bench.x[0][i] += 1;  // tokens 4 and 5
    bench.forward();
    EXPECT_TRUE(std::equal(y.begin(), y.begin() + 4 * 4, bench.y.begin()));
    EXPECT_FALSE(std::equal(y.begin() + 4 * 4, y.end(), bench.y.begin() + 4 * 4));
  }
}

}  // namespace
}  // namespace clustar::bench::trainer::graph
