// `clustar ab --scaling` as a user runs it, on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/report/report.h"
#include "tests/trainer/command.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using trainer::Outcome;
using trainer::run_clustar;
using trainer::TemporaryDirectory;
using trainer::Words;

Words scaling_words(const Words& more) {
  return trainer::plus({"ab", "--local", "--scaling", "1,2", "--rounds", "1", "--epochs", "1", "--model", "lr"}, more);
}

TEST(ScalingCommand, TrainsAtEachNumberOfRanks) {
  const TemporaryDirectory folder;
  const Outcome outcome = run_clustar(scaling_words({"--batch", "16", "--examples", "200", "--lr", "0.1", "--json",
                                                     folder.file("s.json"), "--report", folder.file("s.html")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("one rank"), HasSubstr("weak scaling")));
  const json document = folder.read_json("s.json");
  ASSERT_EQ(document["results"].size(), 4u);
  const json& alone = document["results"][0];
  const json& two = document["results"][1];
  EXPECT_EQ(alone["ranks"], 1);
  EXPECT_EQ(alone["batch"], 16);
  EXPECT_EQ(alone["steps"], 10);
  EXPECT_GT(alone["accuracy"], 0);
  EXPECT_EQ(two["ranks"], 2);
  EXPECT_EQ(two["batch"], 32);
  EXPECT_EQ(two["learning_rate"], 0.2);
  EXPECT_EQ(two["steps"], 5);
  EXPECT_GT(two["efficiency"]["median"], 0);
  for (const json& run : document["scaling"]["runs"]) {
    const bool sums = run["arm"] == "baseline" || run["arm"] == "candidate";
    EXPECT_EQ(run["replicas_identical"], run["arm"] == "no communication" ? json(nullptr) : json(true)) << run;
    EXPECT_EQ(run["bytes_sent"].get<double>() > 0, sums) << run;
  }
  const Outcome again = run_clustar({"report", folder.file("s.json"), "-o", folder.file("again.html")});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(*report::read_text(folder.file("again.html")), *report::read_text(folder.file("s.html")));
}

TEST(ScalingCommand, AReplayScalesAndIsNamedSo) {
  const TemporaryDirectory folder;
  const Outcome outcome = run_clustar(scaling_words({"--batch-rule", "strong", "--compute", "estimate=v100", "--batch",
                                                     "32", "--examples", "320", "--json", folder.file("s.json")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("REPLAY"), HasSubstr("strong scaling")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("s.json")));
  const json document = folder.read_json("s.replay-t1-b1.json");
  for (const json& row : document["results"]) {
    EXPECT_EQ(row["batch"], 32);
    EXPECT_EQ(row["steps"], 10);
    EXPECT_THAT(row["replay"].get<std::string>(), HasSubstr("REPLAY, not computed"));
  }
}

TEST(ScalingCommand, WrongUsageIsStatusTwoAndSaysWhatIsAllowed) {
  const auto refused = [](const Words& words, const std::string& expected) {
    const Outcome outcome = run_clustar(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  };
  refused({"ab", "--local", "--scaling", "2,4"}, "1,2,4,8");
  refused(scaling_words({"--batch", "3000", "--examples", "4000"}), "allowed: 7500 or more");
  refused(scaling_words({"--batch", "1", "--batch-rule", "strong"}), "--batch 1");
  refused(scaling_words({"--lr", "600"}), "--lr 600 is that of one rank: 2 ranks would have 1200");
  refused(scaling_words({"--target-accuracy", "0.5"}), "--target-accuracy");
  refused(scaling_words({"--batch-rule", "some"}), "weak, strong");
  refused(scaling_words({"--hosts", "2"}), "--hosts");
  refused({"ab", "--local", "--batch-rule", "weak"}, "--scaling");
}

}  // namespace
}  // namespace clustar::bench::ab
