#include <gtest/gtest.h>

#include "transport/net/stall_watch.h"

namespace clustar::transport::net {
namespace {

using std::chrono::seconds;
using Verdict = StallWatch::Verdict;

TimePoint at(int second) { return TimePoint(seconds(second)); }

TEST(StallWatch, WarnsAfterTenSecondsAndThenAtDoublingIntervals) {
  StallWatch watch(seconds(0));
  std::vector<int> warned;
  for (int second = 0; second <= 100; ++second) {
    if (watch.check(true, 1, at(second)) == Verdict::kWarn) warned.push_back(second);
  }
  EXPECT_EQ(warned, (std::vector<int>{10, 20, 40, 80}));
}

TEST(StallWatch, ProgressStartsTheCountAnew) {
  StallWatch watch(seconds(0));
  EXPECT_EQ(watch.check(true, 1, at(0)), Verdict::kFine);
  EXPECT_EQ(watch.check(true, 2, at(9)), Verdict::kFine);
  EXPECT_EQ(watch.check(true, 2, at(18)), Verdict::kFine);
  EXPECT_EQ(watch.check(true, 2, at(19)), Verdict::kWarn);
  EXPECT_EQ(watch.silent(), seconds(10));
}

TEST(StallWatch, NothingOutstandingIsNoStall) {
  StallWatch watch(seconds(5));
  for (int second = 0; second <= 100; second += 3) EXPECT_EQ(watch.check(false, 1, at(second)), Verdict::kFine);
  EXPECT_EQ(watch.check(true, 1, at(200)), Verdict::kFine) << "the wait begins with the first outstanding request";
}

TEST(StallWatch, FailsOnlyWhenALimitIsSet) {
  StallWatch limited(seconds(5));
  EXPECT_EQ(limited.check(true, 1, at(0)), Verdict::kFine);
  EXPECT_EQ(limited.check(true, 1, at(4)), Verdict::kFine);
  EXPECT_EQ(limited.check(true, 1, at(5)), Verdict::kFail);
  StallWatch patient(seconds(0));
  for (int second = 0; second <= 100000; second += 1000) EXPECT_NE(patient.check(true, 1, at(second)), Verdict::kFail);
}

}  // namespace
}  // namespace clustar::transport::net
