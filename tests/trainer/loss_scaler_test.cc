// The loss scale by itself: how it changes, when nothing helps, how it is given.
#include "bench/trainer/precision/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LossScaler, GrowsAfterAnIntervalAndHalvesAtAnOverflow) {
  LossScaler scaler({.scaling = LossScaling::kDynamic, .scale = 1024, .interval = 3});
  std::vector<float> scales;
  for (const bool finite : {true, true, false, true, true, true, true, true, true, false, false}) {
    scaler.settle(finite);
    scales.push_back(scaler.scale());
  }
  EXPECT_THAT(scales, ElementsAre(1024, 1024, 512, 512, 512, 1024, 1024, 1024, 2048, 1024, 512));
  EXPECT_EQ(scaler.skipped_steps(), 3u);
}

TEST(LossScaler, GrowsToALimit) {
  LossScaler scaler({.scaling = LossScaling::kDynamic, .scale = 3, .interval = 1});
  for (int step = 0; step < 200; ++step) scaler.settle(true);
  EXPECT_EQ(scaler.scale(), 3 * 4194304.0F) << "twice that is above the limit";
  EXPECT_LE(scaler.scale(), kMostLossScale);
}

TEST(LossScaler, SaysWhenNothingHelps) {
  LossScaler scaler({.scaling = LossScaling::kDynamic, .scale = 2, .interval = 1});
  EXPECT_EQ(scaler.useless(0), "");
  for (int step = 0; step < 17; ++step) scaler.settle(false);
  EXPECT_EQ(scaler.exhausted(0.1), "") << "at the least scale";
  EXPECT_THAT(scaler.useless(17), HasSubstr("none of 17 steps counted"));
  EXPECT_EQ(scaler.useless(18), "");
  scaler.settle(false);
  EXPECT_THAT(scaler.exhausted(0.1), HasSubstr("in 18 steps, whatever the loss scale"));
  EXPECT_EQ(LossScaler(LossScaleOptions{}).exhausted(0.1), "");
}

TEST(LossScaler, AStaticScaleStaysAndCountsWhatItSkips) {
  LossScaler scaler({.scaling = LossScaling::kStatic, .scale = 100, .interval = 1});
  for (const bool finite : {true, false, true}) scaler.settle(finite);
  EXPECT_EQ(scaler.scale(), 100);
  EXPECT_EQ(scaler.skipped_steps(), 1u);
  EXPECT_FALSE(LossScaler(LossScaleOptions{}).is_on());
  EXPECT_EQ(LossScaler(LossScaleOptions{}).scale(), 1);
}

TEST(LossScaler, OptionsAreReadAndSaidBack) {
  for (const auto& [text, said] : {std::pair("none", "none"), std::pair("dynamic", "dynamic=65536"),
                                   std::pair("dynamic=8", "dynamic=8"), std::pair("128.5", "128.5")}) {
    const auto options = parse_loss_scale(text);
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_EQ(to_text(*options), said);
  }
  for (const char* wrong : {"", "0", "0.5", "-1", "nan", "inf", "1e9", "dynamic=", "dynamic8", "dynamic=x", "8 ", " 8",
                            "+8", "0x10", "on"}) {
    const auto options = parse_loss_scale(wrong);
    ASSERT_FALSE(options) << wrong;
    EXPECT_THAT(options.error().message, AllOf(HasSubstr(wrong), HasSubstr("dynamic=SCALE"), HasSubstr("16777216")));
  }
  EXPECT_EQ(usual_loss_scale(Precision::kFloat16).scaling, LossScaling::kDynamic);
  EXPECT_EQ(usual_loss_scale(Precision::kBfloat16).scaling, LossScaling::kNone);
}

}  // namespace
}  // namespace clustar::bench::trainer
