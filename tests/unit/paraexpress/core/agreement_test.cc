#include "paraexpress/core/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paraexpress/core/plans/build.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

TEST(Agreement, AllRanksLearnWhoIsLostAndWhoHasMost) {
  Rng rng(1);
  for (int run = 0; run < 5000; ++run) {
    const auto ranks = static_cast<std::uint32_t>(1 + rng.below(run % 7 == 0 ? 256 : 9));
    const auto helpers = static_cast<std::uint32_t>(1 + rng.below(4));
    std::vector<std::vector<HelperView>> views(ranks, std::vector<HelperView>(helpers));
    std::vector<std::uint64_t> maxima(2 * helpers, 0);
    for (Member rank = 0; rank < ranks; ++rank) {
      for (HelperView& view : views[rank]) view = {rng.chance(0.2), rng.below(run % 2 == 0 ? 4 : 1ULL << 48)};
      const auto numbers = encode_views(views[rank], rank);
      ASSERT_EQ(numbers.size(), maxima.size());
      for (std::size_t i = 0; i < numbers.size(); ++i) maxima[i] = std::max(maxima[i], numbers[i]);
    }
    const auto fates = decode_fates(maxima);
    ASSERT_EQ(fates.size(), helpers);
    for (std::uint32_t helper = 0; helper < helpers; ++helper) {
      bool lost = false;
      Member holder = 0;
      for (Member rank = 0; rank < ranks; ++rank) {
        lost = lost || views[rank][helper].lost;
        if (views[rank][helper].elements > views[holder][helper].elements) holder = rank;
      }
      EXPECT_EQ(fates[helper].lost, lost);
      EXPECT_EQ(fates[helper].holder, holder);
      EXPECT_EQ(fates[helper].elements, views[holder][helper].elements);
    }
  }
}

TEST(Agreement, WithoutSomeHelpersTheGroupIsWhatIsLeft) {
  const auto map = parse_region_map("a ranks=0,1 helpers=0,2\nb ranks=2 helpers=1 oversubscription=2\n", 3, 3);
  ASSERT_TRUE(map);
  const Group group = make_group(3, 3, *map);
  const Group left = without_helpers(group, {true, false, false});
  EXPECT_EQ(inconsistency(left), "");
  EXPECT_EQ(left.helpers, 2U);
  EXPECT_EQ(left.region_of(3), group.region_of(4));
  EXPECT_EQ(left.region_of(4), group.region_of(5));
  EXPECT_TRUE(is_consistent(build(Plan::kSharded, left)));
  const Group none = without_helpers(group, {true, true, true});
  EXPECT_EQ(inconsistency(none), "");
  EXPECT_FALSE(makes_sense(Plan::kSharded, none));
}

TEST(Agreement, AStarOfRanksHasThemAll) {
  const Forest star = star_of_ranks(5, 3);
  EXPECT_TRUE(is_consistent(star)) << inconsistency(star);
  EXPECT_EQ(role_of(star, 0, 3).addends, (std::vector<Member>{0, 1, 2, 3, 4})) << "as a helper adds";
}

}  // namespace
}  // namespace clustar::paraexpress
