#include "nccl_plugin/net/connection_class.h"

#include <gtest/gtest.h>

#include <string>

#include "transport/verbs/settings.h"

namespace clustar::nccl_plugin {
namespace {

// Of a communicator "tp0" under these rules.
int its_class(const std::string& rules, const std::string& dscp = "0-7=48,8=40,9=32,10=24,11-15=8") {
  const auto parsed = UrgencyRules::create(rules);
  const auto classes = transport::LevelClasses::parse(dscp);
  EXPECT_TRUE(parsed && classes);
  return connection_class(*classes, parsed->of("tp0"));
}

constexpr int kShift = 2;  // DSCP in the byte

TEST(ConnectionClass, IsThatOfItsCommunicatorsUrgency) {
  EXPECT_EQ(its_class("comm=tp*,blocking"), 48 << kShift);
  EXPECT_EQ(its_class("prefetch"), 48 << kShift);
  EXPECT_EQ(its_class("gradient"), 24 << kShift) << "as large messages have it";
  EXPECT_EQ(its_class("background"), 8 << kShift);
  EXPECT_EQ(its_class("comm=dp,blocking"), 24 << kShift) << "no rule fits: gradients";
}

TEST(ConnectionClass, OfFunctionsThatDifferWhatNoRuleTellsApartCounts) {
  EXPECT_EQ(its_class(""), 24 << kShift);
  EXPECT_EQ(its_class("func=broadcast,background; blocking"), 48 << kShift);
}

TEST(ConnectionClass, IsNoneWhereNoLevelHasOne) { EXPECT_EQ(its_class("blocking", ""), -1); }

// The byte becomes the service level by its upper three bits, and small numbers would be service levels themselves.
TEST(ConnectionClass, GivesTheServiceLevelOfItsUpperBits) {
  using transport::verbs::service_level_of;
  EXPECT_EQ(service_level_of(its_class("comm=tp*,blocking")), 6);
  EXPECT_EQ(service_level_of(its_class("background")), 1);
  for (int dscp = 0; dscp <= 63; ++dscp) {
    EXPECT_EQ(service_level_of(its_class("background", "0-15=" + std::to_string(dscp))), dscp >> 3) << dscp;
  }
}

}  // namespace
}  // namespace clustar::nccl_plugin
