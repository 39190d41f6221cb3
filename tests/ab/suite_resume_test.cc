// What --resume keeps of an earlier result, what it runs again, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/suite/conduct.h"
#include "tests/ab/fake_hands.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<SuiteArm> arms_of(const std::vector<std::string>& carriers) {
  return choose_arms(carriers, {"ring"}).value();
}

TEST(SuiteResume, LosesNothingThatWasNotAskedFor) {
  FakeHands fake, more;
  const SuitePlan plan = small_plan({"tcp-cubic", "mlt-p0"}, 3);
  const auto before = conduct(plan, fake.hands(), {});
  ASSERT_TRUE(before);
  SuitePlan other = plan;
  other.scenarios = choose_scenarios({"gray", "spine"}, {}).value();
  other.arms = arms_of({"mlt-p0", "mlt-p1"});
  const auto after = conduct(other, more.hands(), {}, *before);
  ASSERT_TRUE(after) << after.error().message;
  ASSERT_EQ((*after)["scenarios"].size(), 3u);
  EXPECT_EQ((*after)["scenarios"][0], (*before)["scenarios"][0]) << "clean";
  EXPECT_EQ((*after)["scenarios"][1]["runs"].size(), 9u) << "gray: six of before and mlt-p1";
  EXPECT_EQ((*after)["scenarios"][1]["arms"].size(), 3u);
  EXPECT_EQ((*after)["scenarios"][2]["runs"].size(), 6u);
  EXPECT_EQ(more.asked.size(), 3u + 6u);
}

TEST(SuiteResume, KnownRunsStayWhereNoPlaceCanBeMade) {
  FakeHands fake, none;
  SuitePlan plan = small_plan({"tcp-cubic"}, 3);
  const auto before = conduct(plan, fake.hands(), {});
  ASSERT_TRUE(before);
  plan.arms = arms_of({"tcp-cubic", "mlt-p0"});
  Hands hands = none.hands();
  hands.open = [](const Scenario&) -> Result<json> { return fail(ErrorCode::kUnavailable, "no root"); };
  json first;
  SuiteEvents events;
  events.on_change = [&](const json& training) {
    if (first.is_null()) first = training;
  };
  const auto after = conduct(plan, hands, events, *before);
  ASSERT_TRUE(after);
  EXPECT_EQ((*after)["scenarios"][0]["runs"], (*before)["scenarios"][0]["runs"]);
  EXPECT_EQ((*after)["scenarios"][0]["problems"][0], "no root");
  EXPECT_EQ(first["scenarios"][1]["runs"].size(), 3u) << "the first file that is written has all of them";
}

TEST(SuiteResume, FailedRunsAreResultsUnlessTheyAreRetried) {
  FakeHands fake, same, again;
  fake.failing["mlt-p0/ring"] = {ErrorCode::kRemote, "rank 3 died"};
  SuitePlan plan = small_plan({"tcp-cubic", "mlt-p0"}, 3);
  const auto before = conduct(plan, fake.hands(), {});
  ASSERT_TRUE(before);
  const auto kept = conduct(plan, same.hands(), {}, *before);
  ASSERT_TRUE(kept);
  EXPECT_TRUE(same.asked.empty());
  EXPECT_EQ((*kept)["scenarios"], (*before)["scenarios"]);

  plan.retry_failed = true;
  const auto retried = conduct(plan, again.hands(), {}, *before);
  ASSERT_TRUE(retried);
  EXPECT_EQ(again.asked.size(), 6u);
  const json& gray = (*retried)["scenarios"][1];
  EXPECT_EQ(gray["runs"].size(), 6u);
  int failed_before = 0;
  for (const json& run : gray["runs"]) {
    EXPECT_FALSE(run.contains("failed"));
    if (!run.contains("failed_before")) continue;
    ++failed_before;
    EXPECT_EQ(run["failed_before"], json{"rank 3 died"});
  }
  EXPECT_EQ(failed_before, 2);
  EXPECT_TRUE(gray["arms"][1]["left_out"].is_null());
}

TEST(SuiteResume, RefusesOtherFabricsAndVersions) {
  FakeHands fake;
  SuitePlan plan = small_plan({"tcp-cubic"}, 1);
  plan.version = "1";
  const auto before = conduct(plan, fake.hands(), {});
  ASSERT_TRUE(before);
  const auto error = [&](const Changes& changes, const std::string& version) {
    SuitePlan other = plan;
    other.scenarios = choose_scenarios({"clean", "gray"}, changes).value();
    other.version = version;
    const auto result = conduct(other, fake.hands(), {}, *before);
    return result ? std::string("none") : result.error().message;
  };
  EXPECT_EQ(error({}, "1"), "none");
  EXPECT_THAT(error({.ranks = 4}, "1"), HasSubstr("ranks of scenario clean was 8 there and is 4 now"));
  EXPECT_THAT(error({.rate = "100M"}, "1"), HasSubstr("rate_bps"));
  EXPECT_THAT(error({.mtu = 9000}, "1"), HasSubstr("mtu"));
  EXPECT_THAT(error({.buffer = "64k"}, "1"), HasSubstr("buffer_bytes"));
  EXPECT_THAT(error({}, "2"), HasSubstr("version"));
  json changed = *before;
  changed["scenarios"][1]["losses"] = {"h1: loss 2%"};
  EXPECT_THAT(conduct(plan, fake.hands(), {}, changed).error().message, HasSubstr("losses of scenario gray"));
}

TEST(SuiteResume, KeepsWhatTheEarlierPlaceHadToSay) {
  FakeHands fake, more;
  SuitePlan plan = small_plan({"tcp-cubic"}, 1);
  auto before = conduct(plan, fake.hands(), {});
  ASSERT_TRUE(before);
  json& clean = (*before)["scenarios"][0];
  clean["place"]["proof"]["per_packet"] = false;
  clean["problems"] = {"it was dark"};
  const auto redrawn = conduct(plan, more.hands(), {}, *before);
  ASSERT_TRUE(redrawn);
  EXPECT_EQ((*redrawn)["scenarios"][0]["problems"][0], "it was dark");
  EXPECT_EQ((*redrawn)["scenarios"][0]["place"], clean["place"]);
  plan.arms = arms_of({"tcp-cubic", "mlt-p0"});
  const auto resumed = conduct(plan, more.hands(), {}, *before);
  ASSERT_TRUE(resumed);
  EXPECT_EQ((*resumed)["scenarios"][0]["earlier_problems"][0], "it was dark");
  EXPECT_EQ((*resumed)["scenarios"][0]["earlier_places"][0], clean["place"]);
  EXPECT_TRUE((*resumed)["scenarios"][0]["problems"].empty());
}

}  // namespace
}  // namespace clustar::bench::ab::suite
