#include "bench/trainer/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "bench/trainer/model.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

std::vector<std::size_t> bytes(const BucketPlan& plan) {
  std::vector<std::size_t> result;
  for (const Bucket& bucket : plan.buckets) result.push_back(bucket.elements * sizeof(float));
  return result;
}

std::vector<double> mib(const BucketPlan& plan) {
  std::vector<double> result;
  for (const std::size_t size : bytes(plan)) result.push_back(static_cast<double>(size) / (1 << 20));
  return result;
}

std::size_t total(const std::vector<std::size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

void add_with_bias(std::vector<std::size_t>& sizes, std::size_t inputs, std::size_t outputs) {
  sizes.push_back(inputs * outputs);
  sizes.push_back(outputs);
}

// Convolution without bias, then batch normalisation.
void add_normalised(std::vector<std::size_t>& sizes, std::size_t inputs, std::size_t outputs, std::size_t side) {
  sizes.insert(sizes.end(), {inputs * outputs * side * side, outputs, outputs});
}

std::vector<std::size_t> alexnet() {
  std::vector<std::size_t> sizes;
  add_with_bias(sizes, 3 * 11 * 11, 64);
  add_with_bias(sizes, 64 * 5 * 5, 192);
  add_with_bias(sizes, 192 * 9, 384);
  add_with_bias(sizes, 384 * 9, 256);
  add_with_bias(sizes, 256 * 9, 256);
  add_with_bias(sizes, 9216, 4096);
  add_with_bias(sizes, 4096, 4096);
  add_with_bias(sizes, 4096, 1000);
  return sizes;
}

std::vector<std::size_t> vgg16() {
  std::vector<std::size_t> sizes;
  std::size_t inputs = 3;
  for (const std::size_t outputs : {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}) {
    add_with_bias(sizes, inputs * 9, outputs);
    inputs = outputs;
  }
  add_with_bias(sizes, 25088, 4096);
  add_with_bias(sizes, 4096, 4096);
  add_with_bias(sizes, 4096, 1000);
  return sizes;
}

std::vector<std::size_t> resnet50() {
  std::vector<std::size_t> sizes;
  add_normalised(sizes, 3, 64, 7);
  std::size_t inputs = 64;
  const std::vector<std::pair<std::size_t, int>> stages{{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [width, blocks] : stages) {
    for (int block = 0; block < blocks; ++block) {
      add_normalised(sizes, inputs, width, 1);
      add_normalised(sizes, width, width, 3);
      add_normalised(sizes, width, 4 * width, 1);
      if (block == 0) add_normalised(sizes, inputs, 4 * width, 1);
      inputs = 4 * width;
    }
  }
  add_with_bias(sizes, 2048, 1000);
  return sizes;
}

TEST(Buckets, Mlp) {
  const auto model = make_model("mlp");
  const BucketPlan plan = plan_buckets(model->tensor_elements());
  EXPECT_EQ(plan.elements, 669706u);
  EXPECT_THAT(bytes(plan), ElementsAre(1071144u, 1607680u));
  EXPECT_THAT(plan.buckets[0].tensors, ElementsAre(5u, 4u, 3u, 2u));
  EXPECT_THAT(plan.buckets[1].tensors, ElementsAre(1u, 0u));
  EXPECT_EQ(plan.buckets[1].offset, plan.buckets[0].elements);
}

TEST(Buckets, LogisticRegressionIsOneBucket) {
  const BucketPlan plan = plan_buckets(make_model("lr")->tensor_elements());
  EXPECT_THAT(bytes(plan), ElementsAre(31400u));
}

TEST(Buckets, AlexNet) {
  EXPECT_EQ(total(alexnet()), 61100840u);
  EXPECT_THAT(mib(plan_buckets(alexnet())), Pointwise(DoubleNear(0.06), {15.6, 64.0, 144.0, 9.4}));
}

TEST(Buckets, Vgg16) {
  EXPECT_EQ(total(vgg16()), 138357544u);
  EXPECT_THAT(mib(plan_buckets(vgg16())), Pointwise(DoubleNear(0.06), {15.6, 64.0, 392.0, 27.0, 27.0, 2.1}));
}

TEST(Buckets, ResNet50) {
  EXPECT_EQ(resnet50().size(), 161u);
  EXPECT_EQ(total(resnet50()), 25557032u);
  EXPECT_THAT(mib(plan_buckets(resnet50())), Pointwise(DoubleNear(0.06), {7.8, 30.0, 25.0, 25.3, 9.3}));
}

TEST(Buckets, ClosesExactlyAtTheCap) {
  const std::vector<std::size_t> sizes{4, 3, 1, 4};
  EXPECT_THAT(bytes(plan_buckets(sizes, 16, 16)), ElementsAre(16u, 16u, 16u));
  EXPECT_THAT(bytes(plan_buckets(sizes, 17, 16)), ElementsAre(20u, 28u));
  EXPECT_THAT(bytes(plan_buckets(sizes, 1000, 1000)), ElementsAre(48u));
}

TEST(Buckets, NothingIsNothing) { EXPECT_TRUE(plan_buckets({}).buckets.empty()); }

TEST(Buckets, TensorsLieInReverseOrderWithoutGaps) {
  const std::vector<std::size_t> sizes{7, 5, 3};
  EXPECT_THAT(plan_buckets(sizes).tensor_offset, ElementsAre(8u, 3u, 0u));
}

}  // namespace
}  // namespace clustar::bench::trainer
