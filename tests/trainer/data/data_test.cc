// Random numbers, digests, the generated digits, split and shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/trainer/data/dataset.h"
#include "bench/trainer/data/digits.h"
#include "bench/trainer/digest.h"
#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

std::uint64_t digest_of(const std::vector<float>& values) { return digest(std::as_bytes(std::span(values))); }

TEST(Digest, EveryBitCounts) {
  for (const std::size_t size : {1, 7, 8, 9, 16, 33}) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i) * 0.37f;
    std::set<std::uint64_t> seen{digest_of(values)};
    auto* bytes = reinterpret_cast<unsigned char*>(values.data());
    for (std::size_t bit = 0; bit < size * 32; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
      EXPECT_TRUE(seen.insert(digest_of(values)).second) << "bit " << bit << " of " << size << " floats";
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    }
  }
}

TEST(Digest, OrderAndLengthCount) {
  EXPECT_NE(digest_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), digest_of({2, 1, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_NE(digest_of({0, 0}), digest_of({0, 0, 0}));
  EXPECT_NE(digest_of({0.0f}), digest_of({-0.0f}));
  EXPECT_EQ(digest_of({1, 2, 3}), digest_of({1, 2, 3}));
  EXPECT_NE(digest_of({}), digest_of({0}));
}

TEST(Rng, KnownStream) {
  // Fixes the generator: results of seeded runs would change with it.
  Rng a(1);
  Rng b(1);
  Rng other_stream(1, 1);
  const std::uint64_t first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, other_stream.next());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(a.below(7), 7u);
    const double value = a.uniform();
    EXPECT_GE(value, 0.0);
    EXPECT_LT(value, 1.0);
  }
}

TEST(Rng, PermutationsArePermutations) {
  Rng rng(9);
  auto order = permutation(1000, rng);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
}

TEST(Digits, SameSeedSamePixels) {
  EXPECT_EQ(digest(generate_digits(200, 1)), digest(generate_digits(200, 1)));
  EXPECT_NE(digest(generate_digits(200, 1)), digest(generate_digits(200, 2)));
}

TEST(Digits, AnExampleDoesNotDependOnTheCount) {
  const Dataset few = generate_digits(20, 5);
  const Dataset more = generate_digits(60, 5);
  EXPECT_TRUE(std::equal(few.pixels.begin(), few.pixels.end(), more.pixels.begin()));
}

TEST(Digits, ShapeAndBalance) {
  const Dataset digits = generate_digits(1000, 1);
  EXPECT_EQ(digits.rows, 28u);
  EXPECT_EQ(digits.columns, 28u);
  EXPECT_EQ(digits.pixels.size(), 1000u * 784);
  for (std::uint8_t label = 0; label < 10; ++label) {
    EXPECT_EQ(std::count(digits.labels.begin(), digits.labels.end(), label), 100);
  }
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const auto image = digits.pixels.begin() + static_cast<std::ptrdiff_t>(i * 784);
    ASSERT_GT(std::count_if(image, image + 784, [](std::uint8_t p) { return p > 128; }), 10) << "image " << i;
  }
}

TEST(Split, OneFifthIsHeldOutAndNothingIsInBoth) {
  const Dataset digits = generate_digits(1000, 1);
  const auto split = split_dataset(digits, 1);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->held_out.size(), 200u);
  EXPECT_EQ(split->train.size(), 800u);
  std::set<std::uint32_t> all(split->train.begin(), split->train.end());
  all.insert(split->held_out.begin(), split->held_out.end());
  EXPECT_EQ(all.size(), 1000u);
  // Not the file's order: the held-out part is no contiguous block.
  const auto [low, high] = std::minmax_element(split->held_out.begin(), split->held_out.end());
  EXPECT_GT(*high - *low, 800u);
  EXPECT_NE(split_dataset(digits, 2)->held_out, split->held_out);
  EXPECT_EQ(split_dataset(digits, 1)->held_out, split->held_out);
}

TEST(Split, TooFewExamplesIsAnError) {
  const auto split = split_dataset(generate_digits(4, 1), 1);
  ASSERT_FALSE(split);
  EXPECT_THAT(split.error().message, ::testing::HasSubstr("4 examples"));
}

TEST(Split, EpochsVisitEverythingInAnotherOrder) {
  const auto split = split_dataset(generate_digits(500, 1), 1);
  auto first = epoch_order(*split, 1, 0);
  auto second = epoch_order(*split, 1, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, epoch_order(*split, 1, 0));
  std::sort(first.begin(), first.end());
  auto train = split->train;
  std::sort(train.begin(), train.end());
  EXPECT_EQ(first, train);
}

TEST(Split, SharesCoverTheBatchAndDifferByAtMostOne) {
  std::vector<std::uint32_t> batch(128);
  for (std::uint32_t i = 0; i < batch.size(); ++i) batch[i] = i;
  for (const int ranks : {1, 3, 4, 7, 128, 200}) {
    std::vector<std::uint32_t> joined;
    std::size_t least = batch.size();
    std::size_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = share(batch, rank, ranks);
      joined.insert(joined.end(), part.begin(), part.end());
      least = std::min(least, part.size());
      most = std::max(most, part.size());
    }
    EXPECT_EQ(joined, batch) << ranks;
    EXPECT_LE(most - least, 1u) << ranks;
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
