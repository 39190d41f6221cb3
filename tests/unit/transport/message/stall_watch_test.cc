#include "transport/message/stall_watch.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "transport/message/stall_report.h"

namespace clustar::transport {
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

struct SetClock final : Clock {
  TimePoint now() const override { return time; }
  TimePoint time = at(0);
};

TEST(StallReport, WarnsAndThenSaysThatItIsOver) {
  SetClock clock;
  std::vector<std::string> warned;
  const Log log([&](LogLevel, const std::string& text) { warned.push_back(text); });
  StallReport report("tcp", seconds(15), clock, log);
  const auto check = [&](int second) {
    clock.time = at(second);
    return report.check(true, 1, [] { return Stall{"10.0.0.2", "has sent nothing", "3 receives outstanding"}; });
  };
  EXPECT_EQ(check(0), std::nullopt);
  EXPECT_EQ(check(9), std::nullopt);
  EXPECT_TRUE(warned.empty());
  EXPECT_EQ(check(11), std::nullopt);
  const std::string words = "10.0.0.2 has sent nothing for 11 s (3 receives outstanding); its host answers";
  EXPECT_EQ(warned, std::vector<std::string>{"tcp: straggler: " + words});
  EXPECT_EQ(check(15),
            "10.0.0.2 has sent nothing for 15 s (3 receives outstanding); its host answers; CLUSTAR_STALL_TIMEOUT is "
            "over");
}

}  // namespace
}  // namespace clustar::transport
