#include "paraexpress/core/region_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clustar::paraexpress {
namespace {

using testing::ElementsAre;

std::string error_of(const std::string& text, std::uint32_t ranks = 4, std::uint32_t helpers = 1) {
  const auto map = parse_region_map(text, ranks, helpers);
  return map ? "" : map.error().message;
}

TEST(RegionMap, is_read_from_lines) {
  const auto map = parse_region_map(
      "# two racks\n\n  rack0 ranks=0-1,3 oversubscription=2.5   # and a comment\r\nrack1\tranks=2 helpers=0 hosts=8",
      4, 1);
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_EQ(map->regions.size(), 2u);
  EXPECT_EQ(map->regions[0].name, "rack0");
  EXPECT_EQ(map->regions[0].hosts, 3u);
  EXPECT_EQ(map->regions[0].oversubscription, 2.5);
  EXPECT_EQ(map->regions[1].hosts, 8u);
  EXPECT_EQ(map->regions[1].oversubscription, 1);
  EXPECT_THAT(map->region_of, ElementsAre(0, 0, 1, 0, 1));
  EXPECT_THAT(members_by_region(*map), ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2, 4)));
}

TEST(RegionMap, errors_name_the_line_and_what_is_allowed) {
  EXPECT_EQ(error_of("a ranks=0-3 helpers=0\n"), "");
  EXPECT_EQ(error_of("\na ranks=0-4"), "2: ranks=0-4; allowed: numbers from 0 to 3 and ranges, as 0-7,9");
  EXPECT_EQ(error_of("a ranks=2-1"), "1: ranks=2-1; allowed: numbers from 0 to 3 and ranges, as 0-7,9");
  EXPECT_EQ(error_of("a ranks=1,"), "1: ranks=1,; allowed: numbers from 0 to 3 and ranges, as 0-7,9");
  EXPECT_EQ(error_of("a ranks=-1"), "1: ranks=-1; allowed: numbers from 0 to 3 and ranges, as 0-7,9");
  EXPECT_EQ(error_of("a ranks="), "1: ranks=; allowed: numbers from 0 to 3 and ranges, as 0-7,9");
  EXPECT_EQ(error_of("a ranks=0\nb ranks=0"), "2: ranks=0: 0 is in 'a' already; allowed: each in one region");
  EXPECT_EQ(error_of("a ranks=0\na ranks=1"), "2: region 'a' appears twice; allowed: each name once");
  EXPECT_EQ(error_of("ranks=0"),
            "1: 'ranks=0' is no name of a region; allowed: a name first, as in 'region0 ranks=0-7'");
  EXPECT_EQ(error_of("a rank=0"), "1: unknown 'rank=0'; allowed: ranks=, helpers=, hosts=, oversubscription=");
  EXPECT_EQ(error_of("a ranks=0 ranks=1"), "1: 'ranks' appears twice in this line; allowed: once");
  EXPECT_EQ(error_of("a ranks=0-3 hosts=2"), "1: hosts=2 in region 'a'; allowed: at least its 4 members");
  EXPECT_EQ(error_of("a hosts=0"), "1: hosts=0; allowed: 1 to 16384");
  EXPECT_EQ(error_of("a"), "1: region 'a' has nobody; allowed: ranks=, helpers= or hosts=");
  for (const std::string value : {"0.5", "0", "nan", "1001", "4x", "", "-4", "4.", "4.1234567"}) {
    EXPECT_EQ(error_of("a oversubscription=" + value),
              "1: oversubscription=" + value + "; allowed: 1 to 1000, as 4 or 2.5");
  }
  EXPECT_EQ(error_of("a ranks=0-2 helpers=0"),
            "rank 3 is in no region; allowed: each rank from 0 to 3 and each helper from 0 to 0 in one");
  EXPECT_EQ(error_of("a ranks=0-3"),
            "helper 0 is in no region; allowed: each rank from 0 to 3 and each helper from 0 to 0 in one");
  EXPECT_EQ(error_of("a ranks=0-3 helpers=0", 4, 0), "1: helpers=0; allowed: nothing, there are none");
  EXPECT_EQ(error_of("", 1, 0), "rank 0 is in no region; allowed: each rank from 0 to 0 in one");
}

TEST(RegionMap, equal_regions_have_a_smaller_last_one) {
  const RegionMap map = equal_regions(5, 2, 4);
  EXPECT_THAT(map.region_of, ElementsAre(0, 0, 1, 1, 2));
  ASSERT_EQ(map.regions.size(), 3u);
  EXPECT_EQ(map.regions[2].hosts, 2u);
  EXPECT_EQ(one_region(3).regions.size(), 1u);
}

}  // namespace
}  // namespace clustar::paraexpress
