// Training in several processes over real net plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/communicator.h"
#include "bench/proxy/net_plugin.h"
#include "bench/trainer/compute/rank_compute.h"
#include "bench/trainer/data/digits.h"
#include "bench/trainer/proxy_collective.h"
#include "bench/trainer/trainer.h"
#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Plugin {
  const char* name;
  const char* path;
};

class TrainOverPlugin : public ::testing::TestWithParam<Plugin> {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more) const {
    std::vector<std::string> all{"train", "--plugin", GetParam().path, "--no-progress"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The results of a run that has to succeed.
  json results(std::vector<std::string> more) const {
    const TemporaryDirectory dir;
    more.insert(more.end(), {"--json", dir.file("r.json")});
    const Outcome outcome = run_clustar(arguments(more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? dir.read_json("r.json").at("results") : json();
  }
};

TEST_P(TrainOverPlugin, WithoutNcclsLibraryTheErrorSaysHowToGetOne) {
  const std::vector<std::string> common{"--ranks", "2", "--examples", "500", "--collective", "nccl", "--nccl-library"};
  // The net plugin is a library, and none of NCCL.
  for (const auto& [library, said] : {std::pair("/nonexistent/libnccl.so.2", "cannot open NCCL's library"),
                                      std::pair(GetParam().path, "it has no ncclGetVersion")}) {
    std::vector<std::string> command = common;
    command.emplace_back(library);
    const Outcome outcome = run_clustar(arguments(command));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(library), HasSubstr(said), HasSubstr("scripts/nccl-host")));
  }
}

TEST_P(TrainOverPlugin, FourRanksEqualOne) {
  const std::vector<std::string> common{"--model", "mlp", "--epochs", "2", "--batch", "250", "--examples", "2500"};
  const json one = results(common);
  std::vector<std::string> with_ranks = common;
  with_ranks.insert(with_ranks.end(), {"--ranks", "4"});
  const json four = results(with_ranks);
  ASSERT_TRUE(four.is_object());
  EXPECT_EQ(four["replicas_identical"], true);
  EXPECT_EQ(four["ranks"], 4);
  EXPECT_NEAR(four["loss"].get<double>(), one["loss"].get<double>(), 1e-3);
  EXPECT_NEAR(four["accuracy"].get<double>(), one["accuracy"].get<double>(), 0.01);
  // A ring sends 2 (n - 1) / n of the buffer from each rank: 2 (n - 1) in all, give or take the rounding of chunks.
  const double expected = 16.0 * 2 * 3 * 2678824;
  EXPECT_NEAR(four["bytes_sent"].get<double>(), expected, 0.01 * expected);
  EXPECT_EQ(four["bytes_received"], four["bytes_sent"]);
  EXPECT_GT(four["messages_sent"], 0);
  EXPECT_GT(four["exposed_comm_s"], 0.0);
  EXPECT_GE(four["hidden_comm_s"], 0.0);
  EXPECT_EQ(four["transport"]["plugin"], GetParam().path);
}

TEST_P(TrainOverPlugin, AllToAllTrainsAsARingDoes) {
  const std::vector<std::string> common{"--model", "mlp", "--epochs", "4", "--examples", "500", "--batch", "50"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return results(more);
  };
  const json ring = with({"--ranks", "3"});
  for (const char* missing : {"zero", "rescale", "residual"}) {
    const json direct = with({"--ranks", "3", "--all-reduce", "all-to-all", "--missing", missing});
    EXPECT_EQ(direct["replicas_identical"], true);
    EXPECT_EQ(direct["all_reduce"], "all-to-all");
    EXPECT_EQ(direct["missing_policy"], missing);
    EXPECT_EQ(direct["missing_contributions"], 0);
    EXPECT_EQ(direct["expected_contributions"], direct["steps"].get<std::uint64_t>() * 2 * 669706);
    EXPECT_NEAR(direct["loss"].get<double>(), ring["loss"].get<double>(), 1e-3);
    // Both send 2 (n - 1) / n of the buffer from each rank.
    const auto expected = ring["bytes_sent"].get<double>();
    EXPECT_NEAR(direct["bytes_sent"].get<double>(), expected, 0.01 * expected);
  }
}

TEST_P(TrainOverPlugin, ForwardThatOverlapsAndFrontBucketsChangeNoBit) {
  const std::vector<std::string> common{"--model",     "cnn", "--epochs", "2", "--batch",           "40",
                                        "--examples",  "400", "--ranks",  "3", "--first-bucket-mb", "0.01",
                                        "--bucket-mb", "0.01"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return results(more);
  };
  const json plain = with({});
  for (const char* front : {"0", "2"}) {
    const json overlapped = with({"--overlap-forward", "--front-buckets", front});
    ASSERT_TRUE(overlapped.is_object());
    EXPECT_EQ(overlapped["parameters_digest"], plain["parameters_digest"]);
    EXPECT_EQ(overlapped["bytes_sent"], plain["bytes_sent"]);
    EXPECT_EQ(overlapped["config"]["front_buckets"], front[0] - '0');
    EXPECT_LE(overlapped["front_wait_s"], overlapped["exposed_comm_s"]);
  }
  EXPECT_EQ(plain["front_wait_s"], plain["exposed_comm_s"]) << "nothing overlaps: it waits for all first";
}

// Element by element, which the command line does not show: four ranks as threads of this process, over the plugin.
TEST_P(TrainOverPlugin, ParametersEqualThoseOfOneProcess) {
  TrainConfig config;
  config.model = "mlp";
  config.epochs = 2;
  config.batch = 50;
  const Model model = *make_model(config.model);
  // Small buckets, so that several are under way at a time.
  const BucketPlan plan = plan_buckets(model.tensor_elements(), 10'000, 100'000);
  ASSERT_EQ(plan.buckets.size(), 3u);
  const Dataset dataset = generate_digits(400, 1);
  const Split split = *split_dataset(dataset, 1);
  const RankCompute computes_alone = *make_compute(config, model, plan, {}, 0, 1);
  Trainer alone(config, model, plan, *computes_alone.compute, dataset, split, {}, {});
  ASSERT_TRUE(alone.run());

  constexpr int kRanks = 4;
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  std::vector<std::vector<float>> parameters(kRanks);
  std::vector<std::string> errors(kRanks);
  const auto run_rank = [&](int rank) -> Result<void> {
    auto bootstrap = proxy::Bootstrap::join({.rank = rank, .size = kRanks, .root = *root});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    auto plugin = proxy::NetPlugin::open(GetParam().path);
    if (!plugin) return tl::unexpected(plugin.error());
    proxy::CommunicatorOptions options;
    options.channels = 2;
    options.stall_timeout = std::chrono::seconds(30);
    auto communicator = proxy::Communicator::create(**plugin, **bootstrap, options);
    if (!communicator) return tl::unexpected(communicator.error());
    ProxyCollective collective(std::move(*communicator), {});
    const RankCompute computes = *make_compute(config, model, plan, {}, rank, kRanks);
    Trainer trainer(config, model, plan, *computes.compute, dataset, split, {&collective, bootstrap->get()}, {});
    const auto report = trainer.run();
    if (!report) return tl::unexpected(report.error());
    parameters[static_cast<std::size_t>(rank)].assign(trainer.parameters().begin(), trainer.parameters().end());
    return collective.close();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      if (const auto ok = run_rank(rank); !ok) errors[static_cast<std::size_t>(rank)] = ok.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, ::testing::Each(std::string()));
  EXPECT_THAT(parameters, ::testing::Each(parameters[0]));
  ASSERT_EQ(parameters[0].size(), alone.parameters().size());
  for (std::size_t i = 0; i < parameters[0].size(); ++i) {
    ASSERT_NEAR(parameters[0][i], alone.parameters()[i], 1e-4) << i;
  }
}

// The CNN's bucket has 80,202 elements in matrices of 25, 1, 400, 1, 512, 1, 128 and 1 columns.
TEST_P(TrainOverPlugin, CodecsKeepReplicasEqualAndSendLess) {
  const std::vector<std::string> common{"--model", "cnn", "--epochs",   "4",   "--lr",    "0.02",
                                        "--batch", "100", "--examples", "800", "--ranks", "4"};
  constexpr double kSteps = 4 * 7;
  constexpr double kReduced = kSteps * 2 * 3 * 320808;  // a ring all-reduce, all four ranks
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    const json run = results(more);
    EXPECT_EQ(run["replicas_identical"], true);
    EXPECT_GT(run["codec_s"], 0.0);
    EXPECT_LT(run["per_epoch"]["loss"].back(), run["per_epoch"]["loss"].front());
    return run["bytes_sent"].get<double>();
  };
  const double kOneBitBlob = 80202 / 8 + 1 + 8 * (25 + 400 + 512 + 128 + 4);
  const double kTopKBlob = 8 * 803;
  EXPECT_EQ(with({"--codec", "onebit"}), kSteps * 4 * 3 * kOneBitBlob);
  EXPECT_EQ(with({"--codec", "topk"}), kSteps * 4 * 3 * kTopKBlob);
  EXPECT_NEAR(with({"--codec", "topk", "--codec-path", "reduce"}), kReduced, 0.01 * kReduced);
}

TEST_P(TrainOverPlugin, RepeatsBitForBit) {
  const std::vector<std::string> options{"--model", "lr",         "--epochs", "2",          "--ranks",
                                         "3",       "--channels", "2",        "--examples", "1000"};
  const json first = results(options);
  const json second = results(options);
  ASSERT_TRUE(first.is_object() && second.is_object());
  EXPECT_EQ(first["parameters_digest"], second["parameters_digest"]);
  EXPECT_EQ(first["loss"], second["loss"]);
}

TEST_P(TrainOverPlugin, AKilledRankEndsTheRunSoonAndIsNamed) {
  Command command(arguments({"--model", "mlp", "--epochs", "100000", "--ranks", "3", "--examples", "500"}));
  expect_killed_rank_is_named(command);
}

TEST_P(TrainOverPlugin, AnInterruptLeavesNothingBehind) {
  for (const int signal : {SIGINT, SIGKILL}) {
    Command command(arguments({"--model", "lr", "--epochs", "100000", "--ranks", "2", "--examples", "500"}));
    ASSERT_TRUE(command.wait_for_error_text("epoch   1/"));
    const std::vector<Process> ranks = children_of(command.pid());
    ASSERT_EQ(ranks.size(), 2u);
    kill(command.pid(), signal);
    const Outcome outcome = command.wait();
    EXPECT_EQ(outcome.status, signal == SIGINT ? 1 : 128 + SIGKILL) << outcome.err;
    // After SIGKILL the kernel ends the ranks; the process that adopted them reaps them in its own time.
    const auto runs = [](const Process& rank) {
      std::ifstream stat("/proc/" + std::to_string(rank.pid) + "/stat");
      std::string text;
      std::getline(stat, text);
      return !text.empty() && text.find(") Z ") == std::string::npos && text.find(") X ") == std::string::npos;
    };
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (const Process& rank : ranks) {
      while (runs(rank) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      EXPECT_FALSE(runs(rank)) << rank.command_line;
    }
  }
}

TEST_P(TrainOverPlugin, RanksStartedByHand) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root) << root.error().message;
  const auto by_hand = [&](const std::string& rank, std::vector<std::string> more) {
    std::vector<std::string> all =
        arguments({"--model", "lr", "--epochs", "1", "--rank", rank, "--size", "2", "--root", *root});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const TemporaryDirectory dir;
  Command zero(by_hand("0", {"--json", dir.file("r.json")}));
  Command one(by_hand("1", {}));
  const Outcome second = one.wait();
  const Outcome first = zero.wait();
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(second.out, "");
  EXPECT_EQ(dir.read_json("r.json")["results"]["ranks"], 2);
}

TEST_P(TrainOverPlugin, ARankStartedByHandNoticesThatAnotherDied) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const auto by_hand = [&](const std::string& rank) {
    return arguments(
        {"--model", "mlp", "--examples", "500", "--epochs", "100000", "--rank", rank, "--size", "2", "--root", *root});
  };
  Command zero(by_hand("0"));
  Command one(by_hand("1"));
  ASSERT_TRUE(zero.wait_for_error_text("epoch   1/"));
  kill(one.pid(), SIGKILL);
  const auto before = std::chrono::steady_clock::now();
  const Outcome survivor = zero.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(15));
  EXPECT_EQ(survivor.status, 1);
  // Either in an all-reduce (the bucket is named) or in an exchange over the bootstrap (the rank is named).
  EXPECT_THAT(survivor.err, ::testing::AnyOf(HasSubstr("all-reduce of gradient bucket"), HasSubstr("rank 1")));
}

TEST_P(TrainOverPlugin, RanksWithDifferentSettingsSaySo) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const auto by_hand = [&](const std::string& rank, const std::string& seed) {
    return arguments({"--model", "lr", "--epochs", "1", "--rank", rank, "--size", "2", "--root", *root, "--lr", seed});
  };
  Command zero(by_hand("0", "0.1"));
  Command one(by_hand("1", "0.2"));
  const Outcome second = one.wait();
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("ranks 0 and 1 differ in --lr"));
  EXPECT_EQ(zero.wait().status, 1);
}

TEST_P(TrainOverPlugin, DivergenceIsAFailureWithItsResults) {
  const TemporaryDirectory dir;
  const Outcome outcome = run_clustar(arguments({"--model", "mlp", "--examples", "500", "--epochs", "2", "--ranks", "2",
                                                 "--lr", "1000", "--json", dir.file("r.json")}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("diverged"));
  EXPECT_THAT(outcome.out, HasSubstr("not finite"));
  EXPECT_THAT(dir.read_json("r.json")["results"]["failure"].get<std::string>(), HasSubstr("diverged"));
}

TEST_P(TrainOverPlugin, AVersionItLacksIsAUsageError) {
  // 6 to 12 are valid numbers, but no plugin of this build exports 7.
  const Outcome outcome = run_clustar(arguments({"--ranks", "2", "--plugin-version", "7"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--plugin-version 7"), HasSubstr("exports")));
}

std::vector<Plugin> plugins() {
  std::vector<Plugin> all;
#ifdef CLUSTAR_PLUGIN
  all.push_back({"clustar", CLUSTAR_PLUGIN});
#endif
#ifdef SAMPLE_PLUGIN
  all.push_back({"sample", SAMPLE_PLUGIN});
#endif
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainOverPlugin);
INSTANTIATE_TEST_SUITE_P(Plugins, TrainOverPlugin, ::testing::ValuesIn(plugins()),
                         [](const auto& plugin) { return std::string(plugin.param.name); });

#ifdef CLUSTAR_PLUGIN
TEST(TrainPlugin, LossOnPurposeCostsNoReplica) {
  const TemporaryDirectory dir;
  setenv("CLUSTAR_TRANSPORT", "mlt", 1);
  const Outcome outcome =
      run_clustar({"train", "--plugin", CLUSTAR_PLUGIN, "--ranks", "2", "--epochs", "1", "--examples", "1000",
                   "--inject-loss", "0.01", "--no-progress", "--json", dir.file("r.json")});
  unsetenv("CLUSTAR_TRANSPORT");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("loss=0.01, into what each rank sends"));
  const json results = dir.read_json("r.json").at("results");
  EXPECT_EQ(results["replicas_identical"], true);
  EXPECT_EQ(results["inject_loss"], 0.01);
  EXPECT_EQ(results["inject_faults"], "loss=0.01");
}

TEST(TrainPlugin, LossToleranceIsForMltOnly) {
  setenv("CLUSTAR_TRANSPORT", "tcp", 1);
  const Outcome outcome = run_clustar({"train", "--plugin", CLUSTAR_PLUGIN, "--ranks", "2", "--loss-tolerance=0.01"});
  unsetenv("CLUSTAR_TRANSPORT");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the transport is tcp"), HasSubstr("CLUSTAR_TRANSPORT=mlt")));
}

// The plugin's own words, which name the setting, reach the user of both ranks.
TEST(TrainPlugin, RanksThatDifferInLossNameTheSetting) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const auto by_hand = [&](const char* rules, const std::string& rank) {
    setenv("CLUSTAR_LOSS_RULES", rules, 1);
    auto command = std::make_unique<Command>(std::vector<std::string>{"train", "--plugin", CLUSTAR_PLUGIN, "--model",
                                                                      "lr", "--epochs", "1", "--examples", "500",
                                                                      "--rank", rank, "--size", "2", "--root", *root});
    unsetenv("CLUSTAR_LOSS_RULES");
    return command;
  };
  const auto zero = by_hand("p=0.01", "0");
  const auto one = by_hand("p=0.02", "1");
  for (const Outcome& outcome : {one->wait(), zero->wait()}) {
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("ranks 0 and 1 differ in CLUSTAR_LOSS_RULES"));
  }
  // Before it looks for the others.
  const Outcome broken = by_hand("q=0.02", "1")->wait();
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, HasSubstr("unknown key 'q'"));
}

// As the plugin reads them; a bound below what it allows would fail the run.
TEST(TrainPlugin, BlanksInRulesDoNotHideTheBound) {
  const TemporaryDirectory dir;
  setenv("CLUSTAR_LOSS_RULES", "func = allreduce , p = 0.1", 1);
  const Outcome outcome = run_clustar({"train", "--plugin", CLUSTAR_PLUGIN, "--ranks", "2", "--epochs", "1",
                                       "--examples", "500", "--no-progress", "--json", dir.file("r.json")});
  unsetenv("CLUSTAR_LOSS_RULES");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(dir.read_json("r.json").at("results")["loss_bound"], 0.1);
}

// Without CLUSTAR_TRANSPORT: the option brings what it needs. Every rank keeps its ledger, or the run would fail.
TEST(TrainPlugin, ToleratedLossKeepsReplicasEqual) {
  const TemporaryDirectory dir;
  setenv("CLUSTAR_LOSS_WARMUP", "2", 1);
  const Outcome outcome =
      run_clustar({"train", "--plugin", CLUSTAR_PLUGIN, "--ranks", "2", "--epochs", "1", "--examples", "1000",
                   "--loss-tolerance", "0.05", "--inject-loss", "0.02", "--no-progress", "--json", dir.file("r.json")});
  unsetenv("CLUSTAR_LOSS_WARMUP");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json results = dir.read_json("r.json").at("results");
  EXPECT_EQ(results["replicas_identical"], true);
  EXPECT_EQ(results["loss_bound"], 0.05);
  EXPECT_GT(results["eligible_bytes"], 0u);
  EXPECT_GT(results["missing_bytes"], 0u);
  EXPECT_GT(results["tolerant_messages"], 0u);
  EXPECT_EQ(results["identified_messages"], results["messages_sent"]);
  for (const json& rank : results["per_rank"]) {
    EXPECT_LE(rank["missing_bytes"].get<double>(), 0.05 * rank["eligible_bytes"].get<double>());
  }
}

// The same of an all-to-all: here the ranks know which contributions are missing.
TEST(TrainPlugin, ToleratedLossOfAnExchangeIsCounted) {
  for (const char* missing : {"rescale", "residual"}) {
    const TemporaryDirectory dir;
    setenv("CLUSTAR_LOSS_WARMUP", "2", 1);
    const Outcome outcome =
        run_clustar({"train",  "--plugin",         CLUSTAR_PLUGIN, "--ranks",       "3",          "--epochs",
                     "1",      "--examples",       "1000",         "--all-reduce",  "all-to-all", "--missing",
                     missing,  "--loss-tolerance", "0.05",         "--inject-loss", "0.02",       "--no-progress",
                     "--json", dir.file("r.json")});
    unsetenv("CLUSTAR_LOSS_WARMUP");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json results = dir.read_json("r.json").at("results");
    EXPECT_EQ(results["replicas_identical"], true);
    EXPECT_GT(results["eligible_bytes"], 0u);
    const auto bytes = results["missing_bytes"].get<double>();
    EXPECT_GT(bytes, 0);
    // An element that lost a byte is missing as a whole.
    const auto contributions = results["missing_contributions"].get<double>();
    EXPECT_GE(contributions * sizeof(float), bytes);
    EXPECT_LE(contributions * sizeof(float), 1.1 * bytes);
    EXPECT_EQ(results["identified_messages"], results["messages_sent"]);
  }
}

TEST(TrainPlugin, LossOnPurposeIsForMltOnly) {
  for (const char* option : {"--inject-loss=0.01", "--inject-faults=loss=0.01"}) {
    const Outcome outcome = run_clustar({"train", "--plugin", CLUSTAR_PLUGIN, "--ranks", "2", option});
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.err, HasSubstr("CLUSTAR_TRANSPORT=mlt")) << option;
  }
}
#endif

TEST(TrainPlugin, AFileThatIsNoPluginIsNamed) {
  const TemporaryDirectory dir;
  dir.write("plugin.so", "not a shared object");
  const Outcome outcome = run_clustar({"train", "--ranks", "2", "--model", "lr", "--plugin", dir.file("plugin.so")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("plugin.so"));
}

}  // namespace
}  // namespace clustar::bench::trainer
