// Replays: their files, estimates, the time they take, and what a run over one reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/trainer/compute/cards.h"
#include "bench/trainer/compute/layer_clock.h"
#include "bench/trainer/compute/network_compute.h"
#include "bench/trainer/compute/options.h"
#include "bench/trainer/compute/replay_compute.h"
#include "tests/temp_path.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;

LayerTimes times_of_mlp() {
  LayerTimes times{.model = "mlp", .batch = 10, .estimated = false, .device = "a test", .layers = {}};
  const Model model = *make_model("mlp");
  for (std::size_t n = 1; n < model.graph.nodes().size(); ++n) {
    times.layers.push_back({model.graph.nodes()[n].name, 0.001, 0.002, 0.003});
  }
  return times;
}

TEST(LayerTimes, AreTheSameAfterAFile) {
  LayerTimes times = times_of_mlp();
  times.layers[1].forward_s = 1.0 / 3;
  const auto again = parse_layer_times(to_text(times));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_text(*again), to_text(times));
  EXPECT_EQ(again->layers[1].forward_s, 1.0 / 3);
  EXPECT_TRUE(check_fits(*again, *make_model("mlp")));
}

std::string wrong_times(const std::function<void(json&)>& change) {
  json document = json::parse(to_text(times_of_mlp()));
  change(document);
  const auto times = parse_layer_times(document.dump());
  return times ? "accepted" : times.error().message;
}

TEST(LayerTimes, SayWhatIsWrongWithAFile) {
  for (const char* text : {"", "{", "[]", "7", "{\"what\": 3}"}) {
    const auto times = parse_layer_times(text);
    ASSERT_FALSE(times) << text;
    EXPECT_THAT(times.error().message, HasSubstr("--record-compute"));
  }
  EXPECT_THAT(wrong_times([](json& d) { d["version"] = 2; }), HasSubstr("allowed: 1"));
  for (const json& batch : {json(0), json(-1), json(1.5), json("4"), json(1u << 21), json()}) {
    EXPECT_THAT(wrong_times([&](json& d) { d["batch"] = batch; }), HasSubstr("from 1 to 1048576")) << batch;
  }
  EXPECT_THAT(wrong_times([](json& d) { d.erase("device"); }), HasSubstr("'device'"));
  EXPECT_THAT(wrong_times([](json& d) { d["layers"] = json::array(); }), HasSubstr("list of 1 to"));
  EXPECT_THAT(wrong_times([](json& d) { d["layers"][2] = 4; }), HasSubstr("layer 3 has no name"));
  for (const json& seconds : {json(-1e-9), json(3601), json("1"), json()}) {
    EXPECT_THAT(wrong_times([&](json& d) { d["layers"][1]["inputs_s"] = seconds; }),
                AllOf(HasSubstr("layer 2: 'inputs_s'"), HasSubstr("from 0 to 3600")));
  }
}

TEST(LayerTimes, OfValuesInValuesAreRefusedHoweverDeep) {
  const std::string text = to_text(times_of_mlp());
  for (const std::size_t depth : {20u, 2'000'000u}) {
    const std::string deep = "\"deep\": " + std::string(depth, '[') + std::string(depth, ']') + ",";
    const auto times = parse_layer_times(std::string(text).insert(1, deep));
    ASSERT_FALSE(times);
    EXPECT_THAT(times.error().message, HasSubstr("more than 8 deep"));
  }
}

TEST(LayerTimes, OfNoTimeAtAllAreRefused) {
  const auto none = [](json& document) {
    for (json& layer : document["layers"]) layer["forward_s"] = layer["parameters_s"] = layer["inputs_s"] = 0;
  };
  EXPECT_THAT(wrong_times(none), HasSubstr("at least two steps"));
}

TEST(LayerTimes, ArePartOfNoPipe) {
  const std::string pipe = tests::temp_path("layer_times");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(load_layer_times(pipe).error().message, AllOf(HasSubstr(pipe), HasSubstr("not a regular file")));
  std::filesystem::remove(pipe);
}

TEST(LayerTimes, OfAnotherModelDoNotFit) {
  const auto message = [](const LayerTimes& times, const char* model) {
    const auto fits = check_fits(times, *make_model(model));
    return fits ? "fits" : fits.error().message;
  };
  LayerTimes times = times_of_mlp();
  EXPECT_THAT(message(times, "cnn"), HasSubstr("times of mlp, not of cnn"));
  times.layers.back().name = "other";
  EXPECT_THAT(message(times, "mlp"), HasSubstr("'other'"));
  times.layers.pop_back();
  EXPECT_THAT(message(times, "mlp"), HasSubstr("times of 4 layers; this mlp has 5"));
}

TEST(Cards, AreEstimatedByMultiplicationsOrByBytes) {
  const Model model = *make_model("vgg16");
  const Card& card = *find_card("v100");
  const LayerTimes times = estimate(model, card, 16);
  ASSERT_TRUE(check_fits(times, model));
  EXPECT_TRUE(times.estimated);
  EXPECT_THAT(times.source(), AllOf(HasSubstr("estimated for v100"), HasSubstr("15.7 TFLOP/s")));
  // 3 x 3 x 64 x 64 multiply-adds at 224 x 224 places.
  EXPECT_EQ(times.layers[2].name, "features.2");
  EXPECT_NEAR(times.layers[2].forward_s, 2.0 * 9 * 64 * 64 * 224 * 224 * 16 / (card.flops * kReached), 1e-9);
  EXPECT_EQ(times.layers[2].inputs_s, times.layers[2].forward_s);
  // ReLU: 64 channels at 224 x 224 places, in and out.
  EXPECT_NEAR(times.layers[1].forward_s, 2.0 * 4 * 64 * 224 * 224 * 16 / card.bytes_per_second, 1e-9);
  EXPECT_EQ(times.layers[1].parameters_s, 0);
  EXPECT_EQ(times.layers[0].inputs_s, 0);  // nobody needs gradients by pixels
  EXPECT_THAT(times.layers[0].parameters_s, Gt(0));
  EXPECT_EQ(find_card("V100"), nullptr);
}

TEST(ComputeOptions, AreReadAndNamed) {
  const auto message = [](const char* text, double time_scale = 1, double byte_scale = 1) {
    const auto parsed = parse_compute(text, time_scale, byte_scale);
    return parsed ? to_text(*parsed) : parsed.error().message;
  };
  for (const char* good : {"cpu", "replay=a.json", "estimate=h100"}) EXPECT_EQ(message(good), good);
  for (const char* bad : {"", "gpu", "replay=", "estimate=", "CPU"}) {
    EXPECT_THAT(message(bad), HasSubstr("allowed: cpu, replay=FILE or estimate=CARD"));
  }
  EXPECT_THAT(message("estimate=k80"), HasSubstr("there are: p100, v100"));
  EXPECT_THAT(message("cpu", 2), HasSubstr("of a replay"));
  EXPECT_THAT(message("cpu", 1, 2), HasSubstr("of a replay"));

  const ComputeOptions options = *parse_compute("estimate=v100", 32, 1.5);
  EXPECT_EQ(tagged("a/b.json", options), "a/b.replay-t32-b1.5.json");
  EXPECT_EQ(tagged("b", options), "b.replay-t32-b1.5");
  EXPECT_EQ(tagged(tagged("a.b/c.html", options), options), "a.b/c.replay-t32-b1.5.html");
  EXPECT_EQ(tagged("-", options), "-");
  EXPECT_EQ(tagged("", options), "");
  EXPECT_EQ(tagged(tagged("b", options), options), "b.replay-t32-b1.5");
  EXPECT_EQ(tagged(tagged("b.json", options), "replay"), "b.replay.json");
  EXPECT_EQ(tagged("b.json", ComputeOptions{}), "b.json");
}

// Each run has names of its own, also beside that of another one.
TEST(FileTags, AreOfExactlyTheirRun) {
  const auto tag = [](const std::string& path, double time_scale, double byte_scale) {
    return tagged(path, *parse_compute("estimate=v100", time_scale, byte_scale));
  };
  EXPECT_EQ(tag("o.replay-t1-b16.json", 1, 1), "o.replay-t1-b1.json");
  EXPECT_EQ(tag("o.replay-t1-b1.json", 1, 16), "o.replay-t1-b16.json");
  EXPECT_EQ(tag("o.replay-t1.5-b1e-05.json", 2, 1), "o.replay-t2-b1.json");
  EXPECT_EQ(tag("o.replay-t1-b1.5", 1, 1), "o.replay-t1-b1");
  EXPECT_EQ(tag("o.replay-t1-b1.of.json", 1, 1), "o.replay-t1-b1.of.replay-t1-b1.json");
  EXPECT_EQ(tag("replayed-t1-b1.json", 1, 1), "replayed-t1-b1.replay-t1-b1.json");
  EXPECT_NE(tag("o", 1.234567, 1), tag("o", 1.2345678, 1));
}

TEST(FileTags, AreNotForDevicesAndPipes) {
  const ComputeOptions options = *parse_compute("estimate=v100", 1, 1);
  const std::string pipe = tests::temp_path("tagged_pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {std::string("/dev/null"), std::string("/dev/stdout"), std::string("/dev/fd/1"),
                                  std::string("/proc/self/fd/7"), pipe}) {
    EXPECT_EQ(tagged(path, options), path);
  }
  std::filesystem::remove(pipe);
  EXPECT_EQ(tagged("/dev/shm/none.json", options), "/dev/shm/none.replay-t1-b1.json");
}

// Time that passes only when somebody sleeps or works.
struct SimulatedTime {
  ReplayClock::Instant now{};
  ReplayClock clock() {
    return {.now = [this] { return now; }, .sleep_until = [this](ReplayClock::Instant until) { now = until; }};
  }
  void work(double seconds) {
    now += std::chrono::duration_cast<ReplayClock::Instant::duration>(std::chrono::duration<double>(seconds));
  }
  double seconds() const { return std::chrono::duration<double>(now.time_since_epoch()).count(); }
};

struct Replay {
  Model model = *make_model("mlp");
  BucketPlan plan = scaled_plan(model, 1 << 20, 25 << 20, 4);
  SimulatedTime time;
  ReplayCompute compute{model, plan, times_of_mlp(), 3, 1, time.clock()};
  std::vector<float> gradients = std::vector<float>(plan.elements, 0);
};

TEST(ReplayCompute, TakesTheTimeOfItsLayers) {
  Replay replay;
  replay.compute.forward(nullptr, {}, 10, {});
  EXPECT_NEAR(replay.time.seconds(), 3 * 5 * 0.001, 1e-9);  // five layers: three dense ones, two of ReLU
  std::vector<std::size_t> order;
  std::vector<double> when;
  replay.compute.backward(nullptr, {}, 1, replay.gradients.data(), [&](std::size_t tensor) {
    order.push_back(tensor);
    when.push_back(replay.time.seconds() - 0.015);
  });
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_NEAR(when[0], 3 * 0.002, 1e-9);
  EXPECT_NEAR(when[5], 3 * (4 * 0.005 + 0.002), 1e-9);
  EXPECT_NEAR(replay.time.seconds(), 0.015 + 3 * 5 * 0.005, 1e-9);
  EXPECT_THAT(replay.gradients, ::testing::Each(::testing::Ne(0)));
}

TEST(ReplayCompute, OfFewerExamplesTakesLess) {
  Replay replay;
  replay.compute.forward(nullptr, {}, 4, {});
  EXPECT_NEAR(replay.time.seconds(), 0.4 * 3 * 5 * 0.001, 1e-9);
}

TEST(ReplayCompute, HidesWhatTheHostDoesAndNotWhatItWaitsFor) {
  Replay replay;
  replay.compute.forward(nullptr, {}, 10, [&](std::size_t first, std::size_t) {
    if (first == 2) replay.time.work(0.1);  // a bucket that is late
  });
  EXPECT_NEAR(replay.time.seconds(), 0.1 + 0.015, 1e-9);
  replay.compute.backward(nullptr, {}, 1, replay.gradients.data(), [&](std::size_t) { replay.time.work(0.001); });
  EXPECT_NEAR(replay.time.seconds(), 0.1 + 0.015 + 3 * 5 * 0.005, 1e-9);
}

TEST(ReplayCompute, IsLaterWhereALayerStoodStill) {
  Replay replay;
  replay.compute.forward(nullptr, {}, 10, {});
  replay.compute.backward(nullptr, {}, 1, replay.gradients.data(), [&](std::size_t tensor) {
    if (tensor != 3) return;
    replay.time.work(0.1);
    replay.compute.stand_still(0.1);
  });
  EXPECT_NEAR(replay.time.seconds(), 0.015 + 0.1 + 3 * 5 * 0.005, 1e-9);
}

// Also where another plan of the buckets has other places.
TEST(ReplayCompute, FillsTensorsWhereTheyLie) {
  Replay replay;
  std::vector<std::size_t> order(replay.plan.tensor_offset.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const BucketPlan other = plan_buckets(replay.plan.tensor_elements, order, {.shards = 4});
  replay.compute.set_tensor_offsets(other.tensor_offset);
  replay.gradients.assign(other.capacity(), 0);
  replay.compute.forward(nullptr, {}, 10, {});
  replay.compute.backward(nullptr, {}, 1, replay.gradients.data(), [](std::size_t) {});
  std::size_t filled = 0;
  for (const float gradient : replay.gradients) filled += gradient != 0 ? 1 : 0;
  EXPECT_EQ(filled, other.parameters());
  for (std::size_t tensor = 0; tensor < order.size(); ++tensor) {
    EXPECT_NE(replay.gradients[other.tensor_offset[tensor] + other.tensor_elements[tensor] - 1], 0) << tensor;
  }
}

TEST(ScaledPlan, HasAsManyBucketsAndAPartOfTheBytes) {
  const Model model = *make_model("vgg16");
  const BucketPlan whole = plan_buckets(model.tensor_elements());
  const BucketPlan scaled = scaled_plan(model, kDefaultFirstBucketBytes, kDefaultBucketBytes, 32);
  ASSERT_EQ(scaled.buckets.size(), whole.buckets.size());
  for (std::size_t i = 0; i < whole.buckets.size(); ++i) {
    EXPECT_EQ(scaled.buckets[i].tensors, whole.buckets[i].tensors);
    EXPECT_NEAR(static_cast<double>(scaled.buckets[i].elements), static_cast<double>(whole.buckets[i].elements) / 32,
                static_cast<double>(whole.buckets[i].tensors.size()));
  }
}

TEST(LayerClock, TakesMediansOfAllStepsButTheFirst) {
  const Model model = *make_model("lr");
  LayerClock clock(model);
  clock.begin(9);
  clock.add(1, graph::Pass::kForward, 9.0);
  clock.add(1, graph::Pass::kInputGradients, 5.0);
  EXPECT_THAT(clock.times().error().message, HasSubstr("one step only"));
  for (const std::size_t examples : {1u, 7u, 2u}) {
    clock.begin(examples);
    clock.add(1, graph::Pass::kForward, static_cast<double>(examples));
  }
  const LayerTimes times = *clock.times();
  ASSERT_EQ(times.layers.size(), 1u);
  EXPECT_EQ(times.layers[0].forward_s, 2.0);
  EXPECT_EQ(times.layers[0].inputs_s, 0);
  EXPECT_EQ(times.batch, 2u);
  EXPECT_FALSE(times.device.empty());
}

TEST(RecordedTimes, AreOfEveryLayerOfTheModelThatRan) {
  const ComputeThread settings_of_thread;
  Problem problem("cnn");
  LayerClock clock(problem.model);
  const auto math = graph::make_cpu_math();
  NetworkCompute compute(problem.model, problem.plan, *math, {.most_share = 50, .clock = &clock});
  Trainer trainer(problem.config, problem.model, problem.plan, compute, problem.dataset, problem.split, {}, {});
  ASSERT_TRUE(trainer.run());
  const LayerTimes times = *clock.times();
  EXPECT_EQ(times.batch, 50u);
  ASSERT_TRUE(check_fits(times, problem.model));
  for (const LayerTime& layer : times.layers) EXPECT_GT(layer.forward_s, 0) << layer.name;
  EXPECT_GT(times.layers[3].parameters_s, 0);  // the second convolution
  EXPECT_GT(times.layers[3].inputs_s, 0);
  double backward = 0;
  for (const LayerTime& layer : times.layers) backward += layer.parameters_s + layer.inputs_s;
  EXPECT_NEAR(times.backward_s(), backward, 1e-9);
}

TEST(Replays, CommunicateAndLearnNothing) {
  Problem problem("mlp");
  problem.config.compute = *parse_compute("estimate=v100", 1, 16);
  problem.plan = plan_of(problem.config, problem.model);
  problem.split.train.resize(200);
  std::iota(problem.split.train.begin(), problem.split.train.end(), 0u);
  problem.times = *replayed_times(problem.config, problem.model, 2);
  problem.dataset = {};
  FakeWorld world(2);
  for (const RankOutcome& rank : problem.run_ranks(world)) {
    ASSERT_TRUE(rank.report) << rank.report.error().message;
    EXPECT_EQ(rank.report->failure, "");
    EXPECT_EQ(rank.report->replicas_identical, true);
    EXPECT_EQ(rank.report->steps, 8u);
    EXPECT_EQ(rank.report->images, 400u);
    EXPECT_TRUE(rank.report->epochs.empty());
    EXPECT_TRUE(rank.report->curve.empty());
  }
  EXPECT_EQ(world.reduced().size(), 8u * 2);
  EXPECT_EQ(world.reduced()[1], problem.plan.buckets[1].elements);
  const json told = replay_json(problem.config, problem.times, 2);
  EXPECT_THAT(told["label"].get<std::string>(), AllOf(HasSubstr("REPLAY"), HasSubstr("estimated"), HasSubstr("/ 16")));
  EXPECT_TRUE(replay_json(problem.config, std::nullopt, 2).is_null());
}

}  // namespace
}  // namespace clustar::bench::trainer
