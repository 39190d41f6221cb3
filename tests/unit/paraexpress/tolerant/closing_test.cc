#include "paraexpress/tolerant/core/closing.h"

#include <gtest/gtest.h>

namespace clustar::paraexpress::tolerant {
namespace {

TimePoint at(int ms) { return TimePoint(std::chrono::milliseconds(ms)); }

Terms terms(std::uint32_t ranks, std::uint32_t quorum, std::uint32_t staleness) {
  Terms all;
  all.ranks = ranks;
  all.quorum = quorum;
  all.staleness = staleness;
  all.deadline = std::chrono::milliseconds(10);
  return all;
}

TEST(TolerantClosing, AFullRoundClosesAtOnceAndOthersAtTheirDeadline) {
  Closing closing(terms(3, 2, 4));
  EXPECT_FALSE(closing.may_close(at(100)));
  closing.arrived(0, 0, 1, true, at(100));
  EXPECT_FALSE(closing.look_again());
  closing.arrived(2, 0, 1, true, at(105));
  EXPECT_FALSE(closing.may_close(at(109)));
  EXPECT_EQ(closing.look_again(), at(110));
  EXPECT_TRUE(closing.may_close(at(110)));
  closing.arrived(1, 0, 1, true, at(106));
  EXPECT_TRUE(closing.may_close(at(106)));
  EXPECT_EQ(closing.contributors().count(), 3);
}

TEST(TolerantClosing, AQuorumIsWaitedForAndThoseThatGiveNothingAreNoneOfIt) {
  Closing closing(terms(3, 2, 4));
  closing.arrived(0, 0, 1, true, at(0));
  closing.arrived(1, 0, 0, true, at(0));
  EXPECT_FALSE(closing.may_close(at(10'000)));
  closing.arrived(2, 0, 1, true, at(10'000));
  EXPECT_TRUE(closing.may_close(at(10'000)));
  // All are in, and nobody else can come.
  Closing other(terms(2, 2, 4));
  other.arrived(0, 0, 0, true, at(0));
  other.arrived(1, 0, 1, true, at(0));
  EXPECT_TRUE(other.may_close(at(0)));
}

TEST(TolerantClosing, WhoIsKnownToBeLateIsNotWaitedForUntilItComes) {
  Closing closing(terms(3, 2, 4));
  const auto two_give = [&](std::uint64_t round) {
    closing.arrived(0, round, 1, true, at(0));
    closing.arrived(1, round, 1, true, at(0));
  };
  two_give(0);
  EXPECT_FALSE(closing.may_close(at(0)));
  ASSERT_TRUE(closing.may_close(at(10)));
  closing.close();
  two_give(1);
  EXPECT_TRUE(closing.may_close(at(0)));
  closing.close();
  // It came too late for round 1, so it may be in time for round 2.
  closing.arrived(2, 1, 1, true, at(0));
  two_give(2);
  EXPECT_FALSE(closing.may_close(at(0)));
  EXPECT_FALSE(closing.contributors().test(2));
  closing.arrived(2, 2, 2, true, at(1));
  EXPECT_TRUE(closing.may_close(at(1)));
  EXPECT_TRUE(closing.contributors().test(2));
}

TEST(TolerantClosing, ARankMissesAtMostItsStalenessInARow) {
  for (const std::uint32_t staleness : {0U, 1U, 3U}) {
    Closing closing(terms(2, 1, staleness));
    for (std::uint64_t round = 0; round < staleness; ++round) {
      closing.arrived(0, round, 1, true, at(0));
      ASSERT_TRUE(closing.may_close(at(10))) << round << " of " << staleness;
      closing.close();
    }
    closing.arrived(0, staleness, 1, true, at(0));
    EXPECT_FALSE(closing.may_close(at(10'000))) << staleness;
    EXPECT_FALSE(closing.look_again());
    // What comes for a round that is over does not count: only being in one does.
    if (staleness > 0) closing.arrived(1, staleness - 1, 1, true, at(10'000));
    EXPECT_FALSE(closing.may_close(at(20'000))) << staleness;
    closing.arrived(1, staleness, 1, true, at(20'000));
    EXPECT_TRUE(closing.may_close(at(20'000))) << staleness;
  }
}

TEST(TolerantClosing, TheDeadlineBeginsWithAGradientOfThisRound) {
  Closing closing(terms(4, 2, 4));
  // Who catches up is there long before the others have computed.
  closing.arrived(3, 0, 1, false, at(0));
  closing.arrived(2, 0, 0, false, at(0));
  EXPECT_FALSE(closing.may_close(at(1000)));
  closing.arrived(0, 0, 1, true, at(1000));
  EXPECT_FALSE(closing.may_close(at(1000)));
  EXPECT_TRUE(closing.may_close(at(1010)));
  Closing none(terms(3, 2, 4));
  for (const Member rank : {0U, 1U}) none.arrived(rank, 0, 1, false, at(0));
  EXPECT_FALSE(none.may_close(at(10'000))) << "nobody computed yet";
  none.arrived(2, 0, 1, false, at(10'000));
  EXPECT_TRUE(none.may_close(at(10'000)));
}

}  // namespace
}  // namespace clustar::paraexpress::tolerant
