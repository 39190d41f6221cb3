#include "paraexpress/core/forest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clustar::paraexpress {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 0 and 1 under 2, 2 under helper 3.
Forest small() { return {3, 1, {{1, 3, {2, 2, 3, 3}}}}; }

TEST(Forest, says_what_is_wrong) {
  EXPECT_EQ(inconsistency(small()), "");
  const auto wrong = [](auto change) {
    Forest forest = small();
    change(forest);
    return inconsistency(forest);
  };
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].parent[0] = kNobody; }), HasSubstr("lacks rank 0"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].parent[0] = 1, f.shards[0].parent[1] = 0; }),
              HasSubstr("has a circle"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].parent[0] = 0; }), HasSubstr("second root"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].parent[0] = 9; }), HasSubstr("no member"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].parent.pop_back(); }), HasSubstr("3 parents"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].root = 4; }), HasSubstr("0 to 3"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].root = 0; }), HasSubstr("which has a parent"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0] = {1, 2, {2, 2, 2, 2}}; }), HasSubstr("helper 3, which adds nothing"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0] = {1, 2, {3, 2, 2, kNobody}}; }), HasSubstr("not in this tree"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].weight = 0; }), HasSubstr("no shard has a weight"));
  EXPECT_THAT(wrong([](Forest& f) { f.shards[0].weight = ~std::uint64_t{0}; }), HasSubstr("2^32"));
  EXPECT_THAT(wrong([](Forest& f) { f.ranks = 0; }), HasSubstr("no rank"));
}

TEST(Forest, the_result_of_a_chain_may_go_onward) {
  const Forest chain{4, 1, {{1, 0, {0, 0, 1, 2, kNobody}, true}}};
  ASSERT_EQ(inconsistency(chain), "");
  EXPECT_THAT(givers_of(chain.shards[0]), ElementsAre(0, 2, 3, 0, kNobody));
  const Role leaf = role_of(chain, 0, 3), root = role_of(chain, 0, 0), last = role_of(chain, 0, 1);
  EXPECT_EQ(leaf.parent, 2u);
  EXPECT_EQ(leaf.giver, 0u);
  EXPECT_THAT(leaf.takers, ElementsAre(2));
  EXPECT_EQ(root.giver, kNobody);
  EXPECT_THAT(root.children, ElementsAre(1));
  EXPECT_THAT(root.takers, ElementsAre(3));
  EXPECT_EQ(last.giver, 2u);
  EXPECT_THAT(last.takers, ElementsAre());
  EXPECT_THAT(givers_of(small().shards[0]), ElementsAre(2, 2, 3, 3)) << "the way back";
  EXPECT_THAT(role_of(small(), 0, 2).takers, ElementsAre(0, 1));
  Forest tree = small();
  tree.shards[0].onward = true;
  EXPECT_THAT(inconsistency(tree), HasSubstr("onward and is no chain"));
  const Forest alone{1, 0, {{1, 0, {0}, true}}};
  EXPECT_EQ(inconsistency(alone), "");
  EXPECT_THAT(role_of(alone, 0, 0).takers, ElementsAre());
}

TEST(Forest, a_member_adds_by_ascending_number_with_itself_among_them) {
  const Forest forest{4, 1, {{1, 1, {1, 1, 1, 4, 1}}}};
  ASSERT_EQ(inconsistency(forest), "");
  const Role root = role_of(forest, 0, 1);
  EXPECT_EQ(root.parent, kNobody);
  EXPECT_THAT(root.children, ElementsAre(0, 2, 4));
  EXPECT_THAT(root.addends, ElementsAre(0, 1, 2, 4));
  const Role helper = role_of(forest, 0, 4);
  EXPECT_EQ(helper.parent, 1u);
  EXPECT_THAT(helper.addends, ElementsAre(3)) << "a helper contributes nothing";
  EXPECT_FALSE(role_of({1, 1, {{1, 0, {0, kNobody}}}}, 0, 1).takes_part);
}

TEST(Forest, goes_through_a_tree_by_height) {
  std::vector<std::uint32_t> heights;
  EXPECT_THAT(leaves_first({1, 1, {1, 1, 1, 4, 1, kNobody}}, heights), ElementsAre(0, 2, 3, 4, 1));
  EXPECT_THAT(heights, ElementsAre(0, 2, 0, 0, 1, 0));
}

TEST(Forest, reads_well) {
  EXPECT_EQ(to_string(small()), "3 ranks, 1 helpers, 1 shards\nshard 0 weight 1 root 3: 0>2 1>2 2>3\n");
}

TEST(ElementRanges, adjoin_cover_all_and_are_near_their_shares) {
  Forest forest{1, 0, {}};
  for (const std::uint64_t weight : {3u, 0u, 1u, 7u, 7u, 2u}) forest.shards.push_back({weight, 0, {0}});
  for (const std::uint64_t count : {0ull, 1ull, 2ull, 5ull, 19ull, 20ull, 21ull, 1000003ull, 1ull << 62}) {
    const auto ranges = element_ranges(forest, count);
    ASSERT_EQ(ranges.size(), 6u);
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(ranges[i].begin, end);
      EXPECT_GE(ranges[i].end, ranges[i].begin);
      end = ranges[i].end;
      const double share = static_cast<double>(count) * static_cast<double>(forest.shards[i].weight) / 20;
      if (count >= 1u << 30) continue;  // doubles are too coarse
      EXPECT_LT(std::abs(static_cast<double>(ranges[i].size()) - share), 1 + 1e-6) << i << " of " << count;
    }
    EXPECT_EQ(end, count);
    EXPECT_EQ(ranges[1].size(), 0u);
  }
}

TEST(ElementRanges, fewer_elements_than_shards) {
  Forest forest{1, 0, std::vector<Shard>(5, Shard{1, 0, {0}})};
  std::vector<std::uint64_t> sizes;
  for (const ElementRange& range : element_ranges(forest, 2)) sizes.push_back(range.size());
  EXPECT_THAT(sizes, ElementsAre(0, 0, 1, 0, 1));
}

}  // namespace
}  // namespace clustar::paraexpress
