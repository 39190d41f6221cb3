// `clustar train` on data of the user's, and what it takes up again after an interrupt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/command.h"
#include "tests/trainer/data/files.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Words small_resnet(const Words& more) {
  return plus({"train", "--model", "resnet50", "--image-size", "32", "--width-divisor", "16", "--batch", "8", "--lr",
               "0.02", "--epochs", "1"},
              more);
}

json results_of(const Words& arguments) {
  const Outcome outcome = run_clustar(plus(arguments, {"--quiet", "--json", "-"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.status == 0 ? json::parse(outcome.out).at("results") : json();
}

void make_photos(const Folder& folder) {
  for (std::size_t i = 0; i < 24; ++i) {
    const auto shade = static_cast<std::uint8_t>(9 * i);
    folder.write((i % 2 == 0 ? "even/" : "odd/") + std::to_string(i) + ".ppm", ppm(40 + i, 50, shade));
  }
}

TEST(TrainData, CifarAndText) {
  const Folder folder;
  folder.write("cifar/data_batch_1.bin", cifar(40));
  folder.write("cifar/test_batch.bin", cifar(10));
  const json images = results_of(small_resnet({"--classes", "10", "--data", folder.file("cifar")}));
  EXPECT_EQ(images.at("train_examples"), 40);
  EXPECT_EQ(images.at("held_out_examples"), 10);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The quick brown fox; it jumps over 2 lazy dogs!\n";
  const json letters = results_of({"train", "--model", "gpt", "--width-divisor", "16", "--batch", "8", "--epochs", "1",
                                   "--data", folder.write("text", text)});
  EXPECT_THAT(letters.at("data_source").get<std::string>(), HasSubstr("text; 2.1 % of its bytes"));
}

// On two ranks, too, and however many batches are prepared ahead.
TEST(TrainData, AFolderOfImagesHasTheSameBitsWithAndWithoutPrefetch) {
  const Folder folder;
  make_photos(folder);
  const Words run = small_resnet(
      {"--classes", "2", "--data", folder.path(), "--ranks", "2", "--collective", "paraexpress", "--plan", "ring"});
  const json ahead = results_of(run);
  const json inlined = results_of(plus(run, {"--prefetch", "0"}));
  EXPECT_EQ(ahead.at("parameters_digest"), inlined.at("parameters_digest"));
  EXPECT_EQ(ahead.at("prefetch"), 2);
  EXPECT_GT(inlined.at("load_s"), 0);
  EXPECT_EQ(inlined.at("per_rank").at(1).at("load_s").get<double>() > 0, true);
}

TEST(TrainData, DamagedImagesEndTheRunOrAreLeftOut) {
  const Folder folder;
  make_photos(folder);
  folder.write("odd/7.ppm", "P6 40");
  const Words run = small_resnet({"--classes", "2", "--data", folder.path()});
  const Outcome failed = run_clustar(run);
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("odd/7.ppm"), HasSubstr("at byte 5"), HasSubstr("--skip-damaged")));
  const json results = results_of(plus(run, {"--skip-damaged"}));
  EXPECT_EQ(results.at("damaged_files").at("count"), 1);
  EXPECT_THAT(results.at("damaged_files").at("first").get<std::string>(), HasSubstr("odd/7.ppm"));
  EXPECT_EQ(results.at("train_examples").get<int>() + results.at("held_out_examples").get<int>(), 23);
  folder.write("third/1.ppm", ppm(9, 9, 1));
  EXPECT_THAT(run_clustar(run).err, HasSubstr("3 sub-folders, of which each is a class; allowed: 1 to the model's 2"));
}

TEST(TrainData, WhatDoesNotSuitTheModelIsNamedBeforeAnyRankStarts) {
  const Folder folder;
  make_photos(folder);
  const Outcome outcome =
      run_clustar({"train", "--ranks", "2", "--data", folder.path(), "--plugin", CLUSTAR_ANY_PLUGIN});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("model mlp takes IDX files"), ::testing::Not(HasSubstr("rank 0"))));
}

TEST(TrainCheckpoint, ARunThatWasKilledGoesOnAsIfItHadNotBeen) {
  const Folder folder;
  const std::string file = folder.file("run.ckpt");
  const Words run{"train",       "--model", "mlp-small", "--examples", "1500",    "--batch", "50",
                  "--lr",        "0.02",    "--codec",   "topk",       "--ranks", "2",       "--collective",
                  "paraexpress", "--plan",  "ring",      "--epochs",   "5"};
  const json whole = results_of(run);
  {
    Command killed(plus(run, {"--checkpoint", file, "--no-progress", "--slow", "1=8"}));
    ASSERT_TRUE(killed.wait_for_error_text("epoch   2/5"));
    kill(killed.pid(), SIGKILL);
    killed.wait();
  }
  ASSERT_TRUE(std::filesystem::exists(file));
  const json rest = results_of(plus(run, {"--checkpoint", file, "--resume", file}));
  EXPECT_EQ(rest.at("parameters_digest"), whole.at("parameters_digest"));
  EXPECT_EQ(rest.at("accuracy"), whole.at("accuracy"));
  const int before = rest.at("resumed").at("epochs");
  EXPECT_GE(before, 1);
  EXPECT_EQ(rest.at("per_epoch").at("loss").size() + static_cast<std::size_t>(before), 5u);
  const Outcome other = run_clustar(plus(run, {"--resume", file, "--momentum", "0.8"}));
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("--momentum: 0.9 there, 0.8 here"));
}

// Before anything is touched: by whatever names, what is written is nothing else that is written or read.
TEST(TrainPaths, AFileIsNotTwoThings) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The quick brown fox jumps over the lazy dog.\n";
  const std::string corpus = folder.write("corpus", text);
  std::filesystem::create_symlink("corpus", folder.file("link"));
  const std::string old = folder.write("old", "an old checkpoint");
  make_photos(folder);
  const std::string same = folder.file("same");
  const std::string other = folder.file("sub/../same");
  folder.write("sub/file", "");
  struct Case {
    Words words;
    std::string expected;
  };
  const std::vector<Case> cases{
      {{"--checkpoint", corpus, "--data", corpus}, "would be written over --data"},
      {{"--json", folder.file("link"), "--data", corpus}, "would be written over --data"},
      {{"--checkpoint", folder.file("c"), "--data", folder.write("c.partial", text)}, "unfinished file"},
      {{"--checkpoint", same, "--json", other}, "are the same file"},
      {{"--checkpoint", same, "--record-compute", same}, "are the same file"},
      {{"--json", same, "--record-compute", other}, "are the same file"},
      {{"--resume", old, "--json", old}, "would be written over --resume"},
      {{"--record-compute", "-", "--json", "-"}, "--json - and --record-compute - are the same file"},
      {{"--record-compute", "/dev/stdout", "--json", "-"}, "are the same file"},
      {{"--checkpoint", "-"}, "--checkpoint -: a checkpoint is a file"},
      {{"--data", folder.path(), "--json", folder.file("even/0.ppm")}, "in a sub-folder of --data"}};
  for (const Case& one : cases) {
    const Outcome outcome = run_clustar(plus({"train", "--model", "gpt"}, one.words));
    EXPECT_EQ(outcome.status, 2) << one.words.front() << " " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(one.expected));
  }
  EXPECT_EQ(std::filesystem::file_size(corpus), text.size());
  const Outcome fine = run_clustar({"train", "--model", "lr", "--examples", "200", "--epochs", "1", "--json",
                                    "/dev/null", "--record-compute", "/dev/null", "--checkpoint", same, "--quiet"});
  EXPECT_EQ(fine.status, 0) << fine.err;
  // A checkpoint may replace the one that it goes on from, by another name of it, too.
  const Outcome rest = run_clustar({"train", "--model", "lr", "--examples", "200", "--epochs", "2", "--checkpoint",
                                    same, "--resume", other, "--quiet"});
  EXPECT_EQ(rest.status, 0) << rest.err;
}

}  // namespace
}  // namespace clustar::bench::trainer
