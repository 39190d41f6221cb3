#include "transport/api/level_classes.h"

#include <gtest/gtest.h>

namespace clustar::transport {
namespace {

TEST(LevelClasses, AreNoneUnlessAskedFor) {
  EXPECT_FALSE(LevelClasses().any());
  EXPECT_EQ(LevelClasses().traffic_class(0), -1);
  const auto none = LevelClasses::parse("");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->any());
}

TEST(LevelClasses, GiveEachLevelItsDscp) {
  const auto classes = LevelClasses::parse("0-8=48,9=0,10-15=63");
  ASSERT_TRUE(classes);
  EXPECT_TRUE(classes->any());
  EXPECT_EQ(classes->traffic_class(0), 48 << 2);
  EXPECT_EQ(classes->traffic_class(8), 48 << 2);
  EXPECT_EQ(classes->traffic_class(9), 0);
  EXPECT_EQ(classes->traffic_class(15), 63 << 2);
  EXPECT_EQ(classes->traffic_class(LevelClasses::kFloorLevel), -1);  // stays as it was
}

TEST(LevelClasses, RefuseWhatLeavesALevelOutOrIsNoDscp) {
  for (const char* bad :
       {"0-15", "0-14=8", "0-16=8", "1-15=8", "0-15=64", "0-15=-1", "0-7=8,9-15=8", "0-8=8,8-15=9", "0-15=8,",
        ",0-15=8", "0-15=8 ", "15-0=8", "0-3=1,4-15=", "x", "0-15=8x", "-0-15=8", "0--15=8", "="}) {
    EXPECT_FALSE(LevelClasses::parse(bad)) << bad;
  }
}

}  // namespace
}  // namespace clustar::transport
