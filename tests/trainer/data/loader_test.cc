// Batches that are prepared ahead.
#include "bench/trainer/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "bench/trainer/data/digits.h"
#include "bench/trainer/data/load.h"
#include "tests/trainer/data/files.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::HasSubstr;

std::string image_name(std::size_t i) { return "class/" + std::to_string(1000 + i) + ".ppm"; }

// A folder of `count` images, of which an example each is a batch.
Dataset one_class(const Folder& folder, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) folder.write(image_name(i), ppm(8, 8, static_cast<std::uint8_t>(i)));
  return *load(folder.path(), {"resnet50", DataKind::kImages, 4, 4, 2}, false);
}

class Prefetch : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Prefetch, GivesTheBatchesInTheirOrder) {
  const Dataset digits = generate_digits(100, 1);
  Loader loader(digits, GetParam());
  for (std::uint32_t i = 0; i < 10; ++i) loader.expect(numbers(10 * i, 3 + i % 2));
  for (std::uint32_t i = 0; i < 20; ++i) {
    if (i == 10) {  // after a queue that ran empty
      for (std::uint32_t j = 0; j < 10; ++j) loader.expect(numbers(j, j));
    }
    const Batch expected = batch_of(digits, i < 10 ? numbers(10 * i, 3 + i % 2) : numbers(i - 10, i - 10));
    const auto batch = loader.next();
    ASSERT_TRUE(batch) << batch.error().message;
    EXPECT_EQ((*batch)->x, expected.x) << i;
    EXPECT_EQ((*batch)->labels, expected.labels) << i;
  }
  EXPECT_GE(loader.waited_s(), 0);
}

TEST_P(Prefetch, SkipsABatch) {
  const Dataset digits = generate_digits(50, 1);
  Loader loader(digits, GetParam());
  for (std::uint32_t i = 0; i < 5; ++i) loader.expect(numbers(i, 1));
  loader.skip();
  EXPECT_EQ((*loader.next())->x, batch_of(digits, {1}).x);
  loader.skip();
  loader.skip();
  EXPECT_EQ((*loader.next())->x, batch_of(digits, {4}).x);
}

TEST_P(Prefetch, ErrorsComeWithTheBatchThatNeedsTheFile) {
  const Folder folder;
  const Dataset dataset = one_class(folder, 6);
  std::filesystem::remove(folder.file(image_name(3)));
  Loader loader(dataset, GetParam());
  for (std::uint32_t i = 0; i < 6; ++i) loader.expect(numbers(i, 1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next()) << i;
  const auto missing = loader.next();
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr(image_name(3)));
  EXPECT_TRUE(loader.next());
}

TEST_P(Prefetch, EndsWithBatchesThatNobodyTook) {
  const Dataset digits = generate_digits(50, 1);
  for (int taken = 0; taken < 4; ++taken) {
    Loader loader(digits, GetParam());
    for (std::uint32_t i = 0; i < 9; ++i) loader.expect(numbers(i, 40));
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next());
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, Prefetch, ::testing::Values(0, 1, 2, 7));

// The file of a batch is made only when the loader may come to it: one that reads farther ahead finds none.
TEST(LoaderQueue, IsBounded) {
  constexpr std::size_t kPrefetch = 2;
  constexpr std::size_t kBatches = 40;
  const Folder folder;
  const Dataset dataset = one_class(folder, kBatches);
  for (std::size_t i = kPrefetch; i < kBatches; ++i) std::filesystem::remove(folder.file(image_name(i)));
  Loader loader(dataset, kPrefetch);
  for (std::uint32_t i = 0; i < kBatches; ++i) loader.expect(numbers(i, 1));
  for (std::size_t i = 0; i < kBatches; ++i) {
    if (i + kPrefetch < kBatches) folder.write(image_name(i + kPrefetch), ppm(8, 8, 1));
    const auto batch = loader.next();
    ASSERT_TRUE(batch) << i << ": " << batch.error().message;
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
