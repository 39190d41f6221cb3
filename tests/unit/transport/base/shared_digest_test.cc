#include "transport/base/shared_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "transport/base/rng.h"

namespace clustar {
namespace {

std::vector<std::string> names_of(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back("CLUSTAR_SETTING_" + std::to_string(i));
  return names;
}

// Of the settings in `changed` another value.
SharedDigest digest_of(const std::vector<std::string>& names, const std::set<std::size_t>& changed,
                       std::uint64_t seed) {
  SharedDigest digest;
  for (std::size_t i = 0; i < names.size(); ++i) {
    digest.add(names[i], std::to_string(seed + i) + (changed.contains(i) ? "!" : ""));
  }
  return digest;
}

TEST(SharedDigest, TellsWhichSettingsDiffer) {
  Rng rng(1);
  for (const std::size_t count : {1u, 8u, 50u, 200u}) {
    const std::vector<std::string> names = names_of(count);
    for (int trial = 0; trial < (count > 100 ? 10 : 100); ++trial) {
      const std::uint64_t seed = rng.next() >> 8;
      const SharedDigest here = digest_of(names, {}, seed);
      EXPECT_EQ(here, digest_of(names, {}, seed));
      std::set<std::size_t> changed;
      for (std::uint64_t more = 1 + rng.below(SharedDigest::kNamed); more > 0; --more) changed.insert(rng.below(count));
      std::vector<std::string> expected;
      for (const std::size_t i : changed) expected.push_back(names[i]);
      EXPECT_EQ(differing(here, digest_of(names, changed, seed), names), expected);
    }
  }
}

TEST(SharedDigest, MoreThanItCanNameAreStillADifference) {
  Rng rng(2);
  const std::vector<std::string> names = names_of(40);
  for (int trial = 0; trial < 100; ++trial) {
    std::set<std::size_t> changed;
    while (changed.size() <= SharedDigest::kNamed) changed.insert(rng.below(names.size()));
    const SharedDigest here = digest_of(names, {}, 7), there = digest_of(names, changed, 7);
    EXPECT_FALSE(here == there);
    EXPECT_TRUE(differing(here, there, names).empty());
  }
}

TEST(SharedDigest, DoesNotDependOnTheOrderNorOnWhatIsNotSet) {
  SharedDigest one, other;
  one.add("A", "1"), one.add("B", "2"), one.add("C", "");
  other.add("B", "2"), other.add("A", "1");
  EXPECT_EQ(one, other);
  other = {};
  other.add("A", "2"), other.add("B", "1");
  EXPECT_FALSE(one == other) << "the same values of other settings";
}

TEST(SharedDigest, WordsOfAnyKindAreTaken) {
  SharedDigest strange;
  strange.words.fill(0xffffffff);
  EXPECT_TRUE(differing({}, strange, names_of(20)).empty());
}

}  // namespace
}  // namespace clustar
