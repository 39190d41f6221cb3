#include "mlt/core/send/cubic_window.h"

#include <gtest/gtest.h>

namespace clustar::mlt {
namespace {

constexpr double kBytes = 1448;  // of a segment

double after(CubicWindow cubic, double window, double span_s, double round_trip_ms) {
  for (double passed = 0; passed < span_s * 1e3; passed += round_trip_ms) {
    window = cubic.grown(window, round_trip_ms * 1e6, kBytes, 0);
  }
  return window;
}

// RFC 9438, section 4.1: 1,000 segments are back after cbrt(1000 * 0.3 / 0.4) = 9.1 s, whatever the round trip is.
TEST(CubicWindow, IsBackAfterATimeThatDoesNotDependOnTheRoundTrip) {
  for (const double round_trip_ms : {10.0, 40.0, 100.0}) {
    CubicWindow cubic;
    cubic.start(1000 * kBytes, kBytes);
    const double less = cubic.after_loss(1000 * kBytes);
    EXPECT_DOUBLE_EQ(less, 700 * kBytes);
    EXPECT_NEAR(after(cubic, less, 9.1, round_trip_ms) / kBytes, 1000, 1);
    EXPECT_NEAR(after(cubic, less, 4.5, round_trip_ms) / kBytes, 1000 - 0.4 * 4.6 * 4.6 * 4.6, 5);
    EXPECT_NEAR(after(cubic, less, 19.1, round_trip_ms) / kBytes, 1400, 20);
  }
}

TEST(CubicWindow, WhoLosesBeforeItIsBackAimsLower) {
  CubicWindow cubic;
  cubic.start(1000 * kBytes, kBytes);
  double window = cubic.after_loss(1000 * kBytes);
  window = cubic.after_loss(after(cubic, window, 1, 40));
  EXPECT_LT(after(cubic, window, 8, 40), 0.75 * 1000 * kBytes);
}

TEST(CubicWindow, GrowsByAtLeastWhatItIsToldAndHalfAtMost) {
  CubicWindow cubic;
  cubic.start(10 * kBytes, kBytes);
  EXPECT_DOUBLE_EQ(cubic.grown(10 * kBytes, 1e6, kBytes, 2 * kBytes), 12 * kBytes);
  EXPECT_DOUBLE_EQ(cubic.grown(10 * kBytes, 100e9, kBytes, 2 * kBytes), 15 * kBytes);
}

}  // namespace
}  // namespace clustar::mlt
