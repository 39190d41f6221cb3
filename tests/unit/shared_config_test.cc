#include "transport/api/shared_config.h"

#include <gtest/gtest.h>

#include <array>

namespace clustar::transport {
namespace {

constexpr std::array<const char*, 2> kKeys{"CLUSTAR_ONE", "CLUSTAR_TWO"};

TEST(SharedConfig, WhatIsWrittenIsRead) {
  for (const int rank : {-1, 0, 70'000}) {
    const SharedConfig config{{1, 0x80000000, 0, 0, 0, 0, 0, 0xffffffff}, rank};
    std::array<std::byte, SharedConfig::kSize> bytes;
    config.serialize_to(bytes);
    EXPECT_EQ(SharedConfig::parse(bytes), config);
  }
  std::array<std::byte, SharedConfig::kSize> bytes{};
  bytes[32] = std::byte{0x80};
  EXPECT_FALSE(SharedConfig::parse(bytes)) << "a negative rank";
}

TEST(SharedConfig, TheFirstDifferenceIsNamedWithBothRanks) {
  const SharedConfig here{{1, 2}, 0};
  EXPECT_FALSE(difference(here, "a", {{1, 2}, 1}, "b", kKeys)) << "ranks may differ";
  EXPECT_EQ(difference(here, "a", {{1, 3, 4}, 1}, "b", kKeys),
            "CLUSTAR_TWO is another on rank 1 than on rank 0; set it alike on all ranks");
  EXPECT_EQ(difference({{1}, -1}, "10.0.0.1:0", {{2}, -1}, "10.0.0.2:99", kKeys),
            "CLUSTAR_ONE is another on 10.0.0.2:99 than on 10.0.0.1:0; set it alike on all ranks");
  EXPECT_EQ(difference(here, "a", {{1, 2, 4}, 1}, "b", kKeys),
            "setting 3 of another plugin version is another on rank 1 than on rank 0; set it alike on all ranks");
}

}  // namespace
}  // namespace clustar::transport
