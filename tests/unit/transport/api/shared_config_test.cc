#include "transport/api/shared_config.h"

#include <gtest/gtest.h>

#include <array>

namespace clustar::transport {
namespace {

const std::array<std::string, 5> kNames{"CLUSTAR_ONE", "CLUSTAR_TWO", "CLUSTAR_THREE", "CLUSTAR_FOUR", "CLUSTAR_FIVE"};

// The settings' values in the order of kNames, one letter each.
SharedConfig config_of(const std::string& values, int rank) {
  SharedConfig config;
  config.rank = rank;
  config.names = kNames;
  for (std::size_t i = 0; i < values.size(); ++i) config.digest.add(kNames[i], values.substr(i, 1));
  return config;
}

TEST(SharedConfig, WhatIsWrittenIsRead) {
  for (const int rank : {-1, 0, 70'000}) {
    const SharedConfig config{{{1, 0x80000000, 0, 0, 0, 0, 0, 0xffffffff}}, rank};
    std::array<std::byte, SharedConfig::kSize> bytes;
    config.serialize_to(bytes);
    EXPECT_EQ(SharedConfig::parse(bytes), config);
  }
  std::array<std::byte, SharedConfig::kSize> bytes{};
  bytes[32] = std::byte{0x80};
  EXPECT_FALSE(SharedConfig::parse(bytes)) << "a negative rank";
}

TEST(SharedConfig, WhatDiffersIsNamedWithBothRanks) {
  const SharedConfig here = config_of("aaaaa", 0);
  EXPECT_FALSE(difference(here, "a", config_of("aaaaa", 1), "b")) << "ranks may differ";
  EXPECT_EQ(difference(here, "a", config_of("abaaa", 1), "b"),
            "CLUSTAR_TWO is another on rank 1 than on rank 0; set it alike on all ranks");
  EXPECT_EQ(difference(config_of("aaaaa", -1), "10.0.0.1:0", config_of("baaab", -1), "10.0.0.2:99"),
            "CLUSTAR_ONE, CLUSTAR_FIVE are another on 10.0.0.2:99 than on 10.0.0.1:0; set them alike on all ranks");
  EXPECT_EQ(difference(here, "a", config_of("bbbba", 1), "b"),
            "more than 3 settings, or some of another plugin version, are another on rank 1 than on rank 0; set them "
            "alike on all ranks");
}

TEST(SharedConfig, ASettingOfAnotherVersionIsADifference) {
  const SharedConfig here = config_of("aaaaa", 0);
  SharedConfig there = config_of("aaaaa", 1);
  there.digest.add("CLUSTAR_SIX", "a");
  const auto found = difference(here, "a", there, "b");
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("another plugin version"), std::string::npos) << *found;
}

}  // namespace
}  // namespace clustar::transport
