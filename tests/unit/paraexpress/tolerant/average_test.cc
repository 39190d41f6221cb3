#include "paraexpress/tolerant/core/average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "transport/base/rng.h"

namespace clustar::paraexpress::tolerant {

void PrintTo(const ElementRange& range, std::ostream* out) { *out << range.begin << ".." << range.end; }

namespace {

template <class T>
constexpr DataType kType = sizeof(T) == 8 ? DataType::kFloat64 : DataType::kFloat32;

// The same, element by element.
template <class T>
void check(std::uint64_t seed) {
  Rng rng(seed);
  const std::uint64_t count = 1 + rng.below(50);
  const auto ranks = static_cast<std::uint32_t>(2 + rng.below(5));
  const AverageTerms terms{ranks, static_cast<std::uint32_t>(1 + rng.below(ranks)), rng.below(4) > 0};
  std::vector<std::vector<T>> values(1 + rng.below(ranks));
  std::vector<Given> given;
  std::vector<std::uint32_t> contributions(count);
  std::vector<double> weights(count), sums(count);
  for (auto& one : values) {
    Given gives{nullptr, static_cast<std::uint32_t>(1 + rng.below(3)), {}};
    for (std::uint64_t i = 0; i < count; ++i) one.push_back(static_cast<T>(rng.below(100)));
    for (std::uint64_t begin = rng.below(count + 1); begin < count; begin += 1 + rng.below(count)) {
      gives.missing.push_back({begin, begin + 1 + rng.below(count - begin)});
      begin = gives.missing.back().end;
    }
    for (const ElementRange& range : gives.missing) {
      for (std::uint64_t i = range.begin; i < range.end; ++i) one[i] = 0;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool there = std::ranges::none_of(
          gives.missing, [i](const ElementRange& range) { return i >= range.begin && i < range.end; });
      if (!there) continue;
      ++contributions[i];
      weights[i] += gives.weight;
      sums[i] += static_cast<double>(one[i]);
    }
    given.push_back(std::move(gives));
  }
  for (std::size_t i = 0; i < values.size(); ++i) given[i].elements = reinterpret_cast<std::byte*>(values[i].data());
  std::vector<T> out(count, T{77});
  average_into(reinterpret_cast<std::byte*>(out.data()), given, count, kType<T>, terms);
  const auto without = left_out(given, count, terms);
  const std::uint32_t quorum = std::min<std::uint32_t>(terms.quorum, static_cast<std::uint32_t>(given.size()));
  std::uint64_t behind = 0;
  for (const ElementRange& range : without) {
    ASSERT_TRUE(range.begin >= behind && range.begin < range.end && range.end <= count);
    behind = range.end + 1;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool out_of_it =
        std::ranges::any_of(without, [i](const ElementRange& range) { return i >= range.begin && i < range.end; });
    ASSERT_EQ(out_of_it, contributions[i] < quorum) << i;
    const double expected = out_of_it ? 0 : terms.scales ? sums[i] * ranks / weights[i] : sums[i];
    ASSERT_NEAR(static_cast<double>(out[i]), expected, 1e-3) << i;
  }
}

TEST(TolerantAverage, EachElementIsScaledByWhatCameOfIt) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    check<float>(seed);
    check<double>(seed);
    if (HasFailure()) return;
  }
}

TEST(TolerantAverage, NothingGivesZerosAndEverythingThePlainBits) {
  std::vector<float> out{1, 2}, a{0.1F, 3}, b{0.2F, 4};
  average_into(reinterpret_cast<std::byte*>(out.data()), {}, 2, DataType::kFloat32, {2, 1, true});
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
  const std::vector<Given> both{{reinterpret_cast<std::byte*>(a.data()), 1, {}},
                                {reinterpret_cast<std::byte*>(b.data()), 1, {}}};
  average_into(reinterpret_cast<std::byte*>(out.data()), both, 2, DataType::kFloat32, {2, 1, true});
  EXPECT_EQ(out, (std::vector<float>{0.1F + 0.2F, 7}));
}

TEST(TolerantAverage, LostBytesAreWholeElements) {
  const auto ranges = [](std::vector<ElementRange> bytes) { return elements_of(bytes, 4, 10); };
  EXPECT_TRUE(ranges({}).empty());
  const auto joined = ranges({{17, 18}, {3, 5}, {8, 9}, {39, 100}, {200, 300}, {5, 5}});
  ASSERT_EQ(joined.size(), 3);
  EXPECT_EQ(joined[0].begin, 0);
  EXPECT_EQ(joined[0].end, 3);
  EXPECT_EQ(joined[1].begin, 4);
  EXPECT_EQ(joined[1].end, 5);
  EXPECT_EQ(joined[2].begin, 9);
  EXPECT_EQ(joined[2].end, 10);
}

}  // namespace
}  // namespace clustar::paraexpress::tolerant
