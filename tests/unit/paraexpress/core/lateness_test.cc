#include "paraexpress/core/lateness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clustar::paraexpress {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Lateness, TheMeanIsOfTheOperationsSinceTheLast) {
  Lateness lateness;
  EXPECT_EQ(lateness.take_mean(), 0);
  lateness.add(1);
  lateness.add(3);
  EXPECT_EQ(lateness.take_mean(), 2);
  lateness.add(5);
  EXPECT_EQ(lateness.take_mean(), 5);
}

TEST(Lateness, WhoSeesShortOperationsIsLate) {
  EXPECT_THAT(lags_of(std::vector<double>{0.030, 0.010, 0.029}),
              ElementsAre(0, DoubleNear(0.020, 1e-9), DoubleNear(0.001, 1e-9)));
}

TEST(Lateness, NoiseIsNoLag) {
  EXPECT_THAT(lags_of(std::vector<double>{0.030, 0.025, 0.029}), IsEmpty());
  EXPECT_THAT(lags_of(std::vector<double>{0.0009, 0.0001}), IsEmpty()) << "below a millisecond";
  EXPECT_THAT(lags_of({}), IsEmpty());
}

TEST(Lateness, SmallChangesAreNoReasonToChoose) {
  const std::vector<double> known{0, 0.020}, near{0, 0.022}, far{0, 0.040}, other{0.020, 0};
  EXPECT_FALSE(differs(known, known));
  EXPECT_FALSE(differs(known, near));
  EXPECT_TRUE(differs(known, far));
  EXPECT_TRUE(differs(known, other));
  EXPECT_TRUE(differs(known, {}));
  EXPECT_TRUE(differs({}, known));
  EXPECT_FALSE(differs({}, {}));
}

}  // namespace
}  // namespace clustar::paraexpress
