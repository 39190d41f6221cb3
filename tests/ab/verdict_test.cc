#include "bench/ab/verdict.h"

#include <gtest/gtest.h>

#include <vector>

namespace clustar::bench::ab {
namespace {

using Rounds = std::vector<double>;

TEST(AbVerdict, AGainBelowTheCeilingIsFaster) {
  const Verdict verdict =
      judge(Rounds{100, 101, 99, 100, 102}, Rounds{150, 151, 149, 152, 150}, Rounds{300, 310, 305, 299, 301});
  EXPECT_EQ(verdict.outcome, Outcome::kFaster);
  EXPECT_NEAR(verdict.ratio.ratio, 1.5, 0.03);
  EXPECT_GT(verdict.ratio.low, 1.4);
  EXPECT_LT(verdict.ratio.high, 1.6);
  EXPECT_NEAR(verdict.ceiling.ratio, 3.0, 0.1);
  EXPECT_NE(verdict.text.find("faster"), std::string::npos);
}

TEST(AbVerdict, ALossIsSlower) {
  EXPECT_EQ(judge(Rounds{100, 100, 100, 100, 100}, Rounds{80, 81, 82, 80, 79}, Rounds{300, 300, 300, 300, 300}).outcome,
            Outcome::kSlower);
}

TEST(AbVerdict, AnIntervalAroundOneShowsNoDifference) {
  EXPECT_EQ(
      judge(Rounds{100, 100, 100, 100, 100}, Rounds{80, 120, 101, 99, 100}, Rounds{300, 300, 300, 300, 300}).outcome,
      Outcome::kNoDifference);
}

TEST(AbVerdict, DriftOfTheMachineDoesNotWidenTheInterval) {
  const Verdict verdict =
      judge(Rounds{100, 200, 400, 800, 1600}, Rounds{150, 300, 600, 1200, 2400}, Rounds{300, 600, 1200, 2400, 4800});
  EXPECT_DOUBLE_EQ(verdict.ratio.low, 1.5);
  EXPECT_DOUBLE_EQ(verdict.ratio.high, 1.5);
}

TEST(AbVerdict, AGainAboveTheCeilingIsAFailureThatExplainsItself) {
  const Verdict verdict =
      judge(Rounds{100, 100, 100, 100, 100}, Rounds{250, 251, 249, 250, 252}, Rounds{200, 201, 199, 200, 202});
  EXPECT_EQ(verdict.outcome, Outcome::kAboveCeiling);
  EXPECT_NE(verdict.text.find("without any communication"), std::string::npos) << verdict.text;
  EXPECT_NE(verdict.text.find("2.000"), std::string::npos) << verdict.text;
}

TEST(AbVerdict, AGainJustAboveTheCeilingFailsToo) {
  EXPECT_EQ(
      judge(Rounds{100, 100, 100, 100, 100}, Rounds{201, 201, 201, 201, 201}, Rounds{200, 200, 200, 200, 200}).outcome,
      Outcome::kAboveCeiling);
}

TEST(AbVerdict, NoGainCannotBeAboveTheCeiling) {
  // Compute only: all three are equal but for noise.
  EXPECT_EQ(
      judge(Rounds{100, 100, 100, 100, 100}, Rounds{97, 102, 103, 98, 101}, Rounds{100, 99, 100, 101, 100}).outcome,
      Outcome::kNoDifference);
}

TEST(AbVerdict, FewerThanFiveRoundsGiveNone) {
  const Verdict verdict = judge(Rounds{100, 100, 100, 100}, Rounds{150, 150, 150, 150}, Rounds{300, 300, 300, 300});
  EXPECT_EQ(verdict.outcome, Outcome::kTooFewRounds);
  EXPECT_NE(verdict.text.find("it takes 5"), std::string::npos) << verdict.text;
}

TEST(AbVerdict, FewRoundsCannotSayThatAGainIsImpossible) {
  EXPECT_EQ(judge(Rounds{100}, Rounds{300}, Rounds{200}).outcome, Outcome::kTooFewRounds);
  EXPECT_EQ(judge(Rounds{100, 100}, Rounds{250, 230}, Rounds{170, 200}).outcome, Outcome::kTooFewRounds);
}

}  // namespace
}  // namespace clustar::bench::ab
