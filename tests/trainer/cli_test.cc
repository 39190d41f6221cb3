// `clustar train` as a user runs it: the executable, its exit status, its text and its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/proxy/bootstrap.h"
#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome train(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return run_clustar(arguments);
}

TEST(TrainUsage, HelpSaysWhatTheBatchIs) {
  const Outcome help = train({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Global batch"), HasSubstr("divided over the ranks"), HasSubstr("--plugin")));
}

TEST(Usage, AnUnknownCommandIsNamedBesideTheKnownOnes) {
  const Outcome outcome = run_clustar({"prf"});
  EXPECT_EQ(outcome.status, 2);
  for (const char* word : {"'prf'", "ab", "conform", "fabric", "perf", "train"}) {
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_clustar({}).status, 2);
  EXPECT_EQ(run_clustar({"--help"}).status, 0);
}

TEST(Usage, TheFirstUnknownOptionIsNamedWithWhatMayBeMeant) {
  struct Case {
    std::vector<std::string> words;
    std::string expected;
    std::string absent;  // what came later on the command line
  };
  const std::vector<Case> cases{
      {{"train", "--epocs", "3", "--rank-cuont", "4"},
       "clustar train: there is no option --epocs; did you mean --epochs?",
       "--rank-cuont"},
      {{"train", "--lr=0.1", "--modle=mlp"}, "there is no option --modle; did you mean --model?", "mlp"},
      {{"perf", "stray", "--zzz"}, "there is no option --zzz\n", "stray"},
      {{"fabric", "up", "--host", "3"}, "clustar fabric up: there is no option --host; did you mean --hosts?", "'3'"},
      {{"settings", "tcp_", "stray"}, "clustar settings: 'stray' was not expected", "tcp_"},
      // What is unknown explains what is missing.
      {{"report", "x.json", "--ouput", "y"}, "there is no option --ouput; did you mean --output?", "required"},
      {{"trian"}, "there is no command 'trian'; did you mean train?", "expected"},
  };
  for (const Case& one : cases) {
    const Outcome outcome = run_clustar(one.words);
    EXPECT_EQ(outcome.status, 2) << one.expected;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(one.expected), Not(HasSubstr(one.absent))));
  }
}

TEST(TrainUsage, APluginThatIsNamedMustBeOneForASingleRankToo) {
  const Outcome missing = train({"--plugin", "/nonexistent/p.so", "--examples", "200", "--epochs", "1"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("/nonexistent/p.so"), HasSubstr("is not a file")));
  const Outcome other = train({"--plugin", "/proc/self/status", "--examples", "200", "--epochs", "1"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("--plugin"));
}

TEST(TrainUsage, WrongValuesSayWhatIsAllowed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--model", "vgg19"}, "available: lr, mlp-small, mlp, cnn, cnn-wide, alexnet, vgg16, resnet50, gpt"},
      {{"--model", "mlp", "--image-size", "32"}, "alexnet, vgg16, resnet50"},
      {{"--model", "resnet50", "--image-size", "0"}, "--image-size"},
      {{"--model", "alexnet", "--image-size", "32"}, "32 x 32"},
      {{"--model", "vgg16", "--width-divisor", "3"}, "allowed: 1, 2, 4, 8, 16"},
      {{"--skip-damaged"}, "with --data only"},
      {{"--prefetch", "1025"}, "--prefetch"},
      {{"--checkpoint-every", "2"}, "needs --checkpoint"},
      {{"--checkpoint", "/nonexistent/c"}, "/nonexistent/c"},
      {{"--resume", "/nonexistent/c"}, "there is no file '/nonexistent/c'"},
      {{"--resume", "/tmp", "--ranks", "2", "--no-communication"}, "the replicas drift apart"},
      {{"--checkpoint", "/tmp/c", "--ranks", "2", "--collective", "paraexpress", "--tolerant", "q=1,deadline=5ms"},
       "cannot be had with --tolerant"},
      {{"--weight-decay", "2"}, "--weight-decay"},
      {{"--ranks", "0"}, "1"},
      {{"--ranks", "many"}, "many"},
      {{"--epochs", "-1"}, "1"},
      {{"--check-equal", "sometimes"}, "every"},
      {{"--plugin-version", "5"}, "6"},
      {{"--codec", "zip"}, "none of none, onebit, topk"},
      {{"--codec", "topk", "--codec-path", "scatter"}, "none of gather, reduce"},
      {{"--codec", "topk", "--topk-fraction", "0"}, "--topk-fraction"},
      {{"--codec", "onebit", "--topk-fraction", "0.1"}, "for --codec topk only"},
      {{"--codec-path", "reduce"}, "--codec onebit or --codec topk"},
      {{"--codec", "onebit", "--no-communication"}, "leave --codec out"},
      {{"--all-reduce", "tree"}, "none of ring, all-to-all"},
      {{"--missing", "zero"}, "--all-reduce all-to-all only"},
      {{"--all-reduce", "all-to-all", "--missing", "all"}, "none of zero, rescale, residual"},
      {{"--all-reduce", "all-to-all", "--codec", "topk"}, "--codec-path reduce"},
      {{"--collective", "mpi"}, "none of proxy, nccl, paraexpress, ps"},
      {{"--collective", "nccl", "--all-reduce", "all-to-all"}, "take --device cuda with it, or --collective proxy"},
      {{"--collective", "nccl", "--all-reduce", "all-to-all", "--device", "cuda", "--update", "host"},
       "leave out --update host"},
      {{"--collective", "nccl", "--all-reduce", "all-to-all", "--device", "cuda", "--precision", "bf16"},
       "packed there; take --collective proxy"},
      {{"--collective", "nccl", "--all-reduce", "all-to-all", "--device", "cuda", "--missing", "residual"},
       "with nccl: zero or rescale"},
      {{"--collective", "nccl", "--no-communication"}, "leave out --collective"},
      {{"--collective", "nccl", "--plugin-version", "9"}, "--collective proxy only"},
      {{"--front-buckets", "1"}, "how ranks communicate"},
      {{"--initial-buckets", "two"}, "none of caps, one"},
      {{"--ranks", "2", "--initial-buckets", "one", "--front-buckets", "1"}, "one bucket only"},
      {{"--accumulate", "0"}, "--accumulate"},
      {{"--ranks", "4", "--batch", "16", "--accumulate", "5"}, "allowed: 1 to 4"},
      {{"--optimizer-sharding", "zero3"}, "none of none, zero1"},
      {{"--optimizer-sharding", "zero1"}, "how ranks communicate"},
      {{"--ranks", "2", "--optimizer-sharding", "zero1", "--collective", "ps"}, "allowed: proxy, nccl and paraexpress"},
      {{"--ranks", "2", "--optimizer-sharding", "zero1", "--codec", "topk"}, "--codec has no path for"},
      {{"--ranks", "2", "--optimizer-sharding", "zero1", "--all-reduce", "all-to-all"}, "leave out --all-reduce"},
      {{"--ranks", "2", "--optimizer-sharding", "zero1", "--collective", "paraexpress", "--tolerant", "q=1"},
       "leave one out"},
      {{"--traffic", "moe=experts:2,tokens:4,hidden:4"}, "how ranks communicate"},
      {{"--ranks", "2", "--traffic", "moe=experts:3,tokens:4,hidden:4"}, "3 experts on 2 ranks"},
      {{"--ranks", "2", "--traffic", "gnn=nodes:3"}, "allowed: moe=experts:N"},
      {{"--ranks", "2", "--traffic", "dlrm=tables:2,dim:4,batch:4", "--collective", "ps"}, "only sums"},
      {{"--front-buckets", "1", "--ranks", "2", "--no-communication"}, "how ranks communicate"},
      {{"--front-buckets", "1", "--ranks", "2", "--model", "lr"}, "lr has one bucket only"},
      {{"--front-buckets", "2", "--ranks", "2"}, "at most 1 are allowed"},
      {{"--front-buckets", "1", "--ranks", "2", "--collective", "nccl"}, "--collective proxy only"},
      {{"--target-accuracy", "97"}, "1"},
      {{"--bucket-mb", "0"}, "0.0001"},
      {{"--no-such-option"}, "--no-such-option"},
      {{"--ranks", "4", "--batch", "3"}, "allowed: 4 or more"},
      {{"--data", "/nonexistent/digits"}, "/nonexistent/digits"},
      {{"--data", "/tmp", "--examples", "500"}, "--examples"},
      {{"--examples", "4"}, "5"},
      {{"--loss-tolerance", "0.2"}, "'0.2' is not a number from 0 to 0.1"},
      {{"--loss-tolerance", "some"}, "'some'"},
      {{"--ranks", "2", "--plugin", "/nonexistent/plugin.so"}, "/nonexistent/plugin.so"},
      {{"--rank", "0"}, "--rank, --size and --root belong together"},
      {{"--rank", "2", "--size", "2", "--root", "127.0.0.1:1"}, "allowed: 0 to 1"},
      {{"--rank", "0", "--size", "2", "--root", "127.0.0.1:1", "--ranks", "3"}, "contradict"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = train(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments[0] << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << arguments[0];
  }
}

TEST(TrainDescribe, TextAndJson) {
  const TemporaryDirectory dir;
  const Outcome text = train({"--model", "mlp", "--describe", "--json", dir.file("d.json")});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("669,706"), HasSubstr("2,678,824"), HasSubstr("bucket 2")));
  const json document = dir.read_json("d.json");
  EXPECT_EQ(document.at("command"), "train");
  EXPECT_THAT(document.at("command_line").get<std::string>(), HasSubstr(" train --model mlp --describe --json "));
  EXPECT_EQ(document.at("results").at("parameters"), 669706);
  EXPECT_EQ(document.at("results").at("gradient_bytes"), 2678824);
  EXPECT_EQ(document.at("results").at("buckets").size(), 2u);
  const Outcome small = train(
      {"--model", "mlp", "--describe", "--quiet", "--json", "-", "--first-bucket-mb", "0.01", "--bucket-mb", "1"});
  EXPECT_EQ(json::parse(small.out).at("results").at("buckets").size(), 3u);
}

TEST(TrainDescribe, LayersAddUpToTheModel) {
  const Outcome outcome = train({"--model", "resnet50", "--image-size", "64", "--describe", "--quiet", "--json", "-"});
  const json results = json::parse(outcome.out).at("results");
  EXPECT_EQ(results.at("parameters"), 25557032);
  EXPECT_EQ(results.at("gradient_bytes"), 102228128);
  EXPECT_EQ(results.at("buckets").size(), 5u);
  std::size_t parameters = 0;
  for (const json& layer : results.at("layers")) parameters += layer.at("parameters").get<std::size_t>();
  EXPECT_EQ(parameters, 25557032u);
  EXPECT_EQ(results.at("layers").front().at("shape"), json({64, 64, 3}));
  EXPECT_EQ(results.at("layers").back().at("shape"), json({1, 1, 1000}));
  const Outcome text = train({"--model", "gpt", "--describe"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("809,728"), HasSubstr("causal attention, 4 heads"), HasSubstr("h.3.mlp.gelu")));
}

TEST(TrainModels, OfImagesAndOfTextTrainOnTwoRanks) {
  const std::vector<std::vector<std::string>> models{
      {"resnet50", "--image-size", "32", "--classes", "4", "--width-divisor", "16"}, {"gpt", "--width-divisor", "8"}};
  for (const std::vector<std::string>& model : models) {
    std::vector<std::string> arguments{"--ranks",    "2",      "--plugin", CLUSTAR_ANY_PLUGIN,
                                       "--examples", "60",     "--batch",  "12",
                                       "--lr",       "0.05",   "--epochs", "2",
                                       "--quiet",    "--json", "-",        "--weight-decay",
                                       "0.0001",     "--model"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    const Outcome outcome = train(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json results = json::parse(outcome.out).at("results");
    EXPECT_EQ(results.at("replicas_identical"), true) << model[0];
    EXPECT_EQ(results.at("steps"), 8);
    EXPECT_EQ(results.at("config").at("weight_decay"), 0.0001);
  }
}

TEST(TrainOneRank, TrainsWithoutAnyPlugin) {
  const TemporaryDirectory dir;
  const Outcome outcome = train({"--model", "lr", "--epochs", "2", "--json", dir.file("r.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("epoch   1/2"), HasSubstr("epoch   2/2")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("none (one rank)"), HasSubstr("held-out accuracy"), HasSubstr("images/s")));
  const json document = dir.read_json("r.json");
  for (const char* key : {"command", "version", "machine", "results"}) EXPECT_TRUE(document.contains(key)) << key;
  const json& results = document["results"];
  for (const char* key : {"accuracy", "loss", "images_per_second", "exposed_comm_s", "compute_s", "bytes_sent",
                          "replicas_identical", "missing_bytes", "eligible_bytes", "gemm", "data_source"}) {
    EXPECT_TRUE(results.contains(key)) << key;
  }
  EXPECT_GT(results["accuracy"], 0.6);
  EXPECT_EQ(results["bytes_sent"], 0);
  EXPECT_EQ(results["exposed_comm_s"].get<double>() < 0.01, true);
  EXPECT_EQ(results["replicas_identical"], true);
  EXPECT_EQ(results["train_examples"], 8000);
  EXPECT_EQ(results["held_out_examples"], 2000);
}

TEST(TrainOneRank, QuietIsQuietAndJsonOnStandardOutputIsPure) {
  const Outcome quiet = train({"--model", "lr", "--examples", "500", "--epochs", "1", "--quiet"});
  EXPECT_EQ(quiet.status, 0);
  EXPECT_EQ(quiet.out + quiet.err, "");
  const Outcome piped = train({"--model", "lr", "--examples", "500", "--epochs", "1", "--json", "-"});
  EXPECT_EQ(json::parse(piped.out).at("results").at("model"), "lr");
}

TEST(TrainCommand, AReplayIsNamedSoInItsFileAndItsOutput) {
  const TemporaryDirectory dir;
  const Words recorded{"--model", "lr", "--examples", "500", "--epochs", "1", "--quiet"};
  ASSERT_EQ(train(plus(recorded, {"--record-compute", dir.file("times.json")})).status, 0);
  const Outcome outcome =
      train({"--model", "lr", "--examples", "640", "--epochs", "2", "--compute", "replay=" + dir.file("times.json"),
             "--time-scale", "4", "--byte-scale", "2", "--json", dir.file("r.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("REPLAY, not computed: times recorded on"), HasSubstr("x 4; bytes / 2"),
                                 HasSubstr("r.replay-t4-b2.json"), Not(HasSubstr("accuracy"))));
  EXPECT_THAT(outcome.err, HasSubstr("replayed"));
  const json results = dir.read_json("r.replay-t4-b2.json").at("results");
  EXPECT_EQ(results.at("replay").at("time_scale"), 4);
  EXPECT_EQ(results.at("replay").at("estimated"), false);
  EXPECT_EQ(results.at("gradient_bytes"), 7850 / 2 * 4);
  EXPECT_EQ(results.at("steps"), 10);
  for (const char* nothing : {"loss", "accuracy", "held_out_loss", "gemm"}) EXPECT_TRUE(results.at(nothing).is_null());
}

// Ranks 0 and 1 of two have shares of 2 and 3.
TEST(TrainCommand, ARecordingIsOfTheExamplesThatRankZeroHad) {
  const TemporaryDirectory dir;
  const Words run{"--model",         "lr", "--epochs", "1", "--ranks", "2", "--no-communication", "--quiet",
                  "--record-compute"};
  const Outcome outcome = train(plus(run, {dir.file("t.json"), "--examples", "100", "--batch", "5"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(dir.read_json("t.json").at("batch"), 2);
  const Outcome one_step = train(plus(run, {dir.file("none.json"), "--examples", "100", "--batch", "80"}));
  EXPECT_EQ(one_step.status, 1);
  EXPECT_THAT(one_step.err, HasSubstr("--record-compute: there was one step only"));
  EXPECT_FALSE(std::filesystem::exists(dir.file("none.json")));
}

TEST(TrainCommand, AReplayMayGoNowhereAndComeFromANameOfAnyEncoding) {
  const TemporaryDirectory dir;
  const Words small{"--model", "lr", "--examples", "500", "--epochs", "1", "--quiet"};
  const std::string times = dir.file("\xff.json");
  ASSERT_EQ(train(plus(small, {"--record-compute", times})).status, 0);
  const Outcome outcome = train(plus(small, {"--compute", "replay=" + times, "--json", "/dev/stdout"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(json::parse(outcome.out).at("results").at("replay").at("layer_times").get<std::string>(),
              HasSubstr("\xef\xbf\xbd.json"));
  const std::string own = dir.file("t.replay-t1-b1.json");
  ASSERT_EQ(train(plus(small, {"--record-compute", own})).status, 0);
  const Outcome over = train(plus(small, {"--compute", "replay=" + own, "--json", dir.file("t.json")}));
  EXPECT_EQ(over.status, 2);
  EXPECT_THAT(over.err, HasSubstr("would be written over --compute replay="));
}

TEST(TrainCommand, RanksOfAReplayNeedAsManyExamples) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const Words rank{"train",  "--model", "lr",     "--compute", "estimate=v100", "--no-communication", "--quiet",
                   "--size", "2",       "--root", *root};
  Command second(plus(rank, {"--rank", "1", "--examples", "600"}));
  const Outcome first = run_clustar(plus(rank, {"--rank", "0", "--examples", "500"}));
  EXPECT_EQ(first.status, 1);
  EXPECT_THAT(first.err, HasSubstr("differ in --examples"));
  EXPECT_EQ(second.wait().status, 1);
}

TEST(TrainCommand, WrongReplaysAreWrongUsage) {
  const std::vector<std::pair<Words, const char*>> wrong{
      {{"--compute", "gpu"}, "allowed: cpu, replay=FILE or estimate=CARD"},
      {{"--compute", "estimate=k80"}, "there are: p100, v100"},
      {{"--compute", "replay=/nowhere"}, "cannot read '/nowhere'"},
      {{"--time-scale", "2"}, "--time-scale and --byte-scale are of a replay"},
      {{"--compute", "estimate=v100", "--target-accuracy", "0.5"}, "a replay learns nothing"},
      {{"--compute", "estimate=v100", "--record-compute", "/tmp/x"}, "of a run that computes"},
      {{"--compute", "estimate=v100", "--byte-scale", "2", "--codec", "onebit"}, "allowed: one of them"}};
  for (const auto& [words, message] : wrong) {
    const Outcome outcome = train(words);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(TrainOneRank, BadDataIsNamed) {
  const TemporaryDirectory dir;
  dir.write("t10k-images-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\x0a\0\0\0\x1c\0\0\0\x1c", 16) + "short");
  dir.write("t10k-labels-idx1-ubyte", "");
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome = train({"--data", dir.path(), "--ranks", ranks, "--plugin", CLUSTAR_ANY_PLUGIN});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("t10k-images-idx3-ubyte"), HasSubstr("7840 bytes"), HasSubstr("only 5")));
  }
}

TEST(TrainOneRank, UnwritableJsonIsFoundOutBeforeTheTraining) {
  const Outcome outcome =
      train({"--model", "lr", "--examples", "500", "--epochs", "1", "--json", "/nonexistent/r.json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/r.json"));
}

TEST(TrainOneRank, AFullDiskIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome outcome = train({"--model", "lr", "--examples", "500", "--epochs", "1", "--json", "/dev/full"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write '/dev/full'"));
}

TEST(TrainUsage, ValuesThatAreNoNumbersOrNoHostAreNamed) {
  EXPECT_THAT(train({"--lr", "nan"}).err, HasSubstr("'nan' is not a number from 0 to 1000"));
  EXPECT_THAT(train({"--bucket-mb", "nan"}).err, HasSubstr("'nan'"));
  EXPECT_THAT(train({"--inject-loss", "0.6"}).err, HasSubstr("'0.6' is not a number from 0 to 0.5"));
  EXPECT_THAT(train({"--inject-faults", "lose=1"}).err, AllOf(HasSubstr("'lose'"), HasSubstr("loss, burst")));
  EXPECT_THAT(train({"--check-equal", "foo"}).err, HasSubstr("every, epoch, off"));
  for (const char* root : {"foo", ":", "host:", ":1", "host:0", "host:99999", "host:1x"}) {
    const Outcome outcome = train({"--rank", "0", "--size", "2", "--root", root});
    EXPECT_EQ(outcome.status, 2) << root;
    EXPECT_THAT(outcome.err, HasSubstr("HOST:PORT")) << root;
  }
}

// MNIST itself is not part of the sources: name its folder to run this.
TEST(TrainMnist, ReachesTheBar) {
  const char* folder = std::getenv("CLUSTAR_TEST_MNIST");
  if (folder == nullptr) GTEST_SKIP() << "CLUSTAR_TEST_MNIST does not name a folder with MNIST's t10k files";
  const TemporaryDirectory dir;
  const Outcome outcome = train({"--model", "mlp", "--data", folder, "--epochs", "20", "--target-accuracy", "0.95",
                                 "--quiet", "--json", dir.file("r.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GE(dir.read_json("r.json")["results"]["accuracy"], 0.95);
}

}  // namespace
}  // namespace clustar::bench::trainer
