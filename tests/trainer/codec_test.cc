// Gradient codecs and error feedback, without any communication.
#include "bench/trainer/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "bench/trainer/encoded_bucket.h"
#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.uniform(-1, 1));
  return values;
}

std::vector<float> round_trip(const GradientCodec& codec, const std::vector<float>& values) {
  std::vector<std::byte> blob(codec.encoded_bytes(), std::byte{0xee});
  const auto encoded = codec.encode(values, blob);
  EXPECT_TRUE(encoded) << encoded.error().message;
  std::vector<float> sum(values.size());
  const auto decoded = codec.add_decoded(blob, sum);
  EXPECT_TRUE(decoded) << decoded.error().message;
  return sum;
}

std::vector<float> one_bit(const std::vector<Matrix>& matrices, const std::vector<float>& values) {
  return round_trip(*make_one_bit_codec(matrices), values);
}

std::vector<float> top_k(double fraction, const std::vector<float>& values) {
  return round_trip(*make_top_k_codec(values.size(), fraction), values);
}

TEST(OneBit, SignsBecomeTheMeansOfTheirSideOfTheColumn) {
  EXPECT_THAT(one_bit({{7, 1}}, {1, -2, 3, -4, 0, -0.0f, 4}), ElementsAre(1.6f, -3, 1.6f, -3, 1.6f, 1.6f, 1.6f));
  EXPECT_THAT(one_bit({{2, 1}}, {-1, -3}), Each(-2.0f));
  EXPECT_THAT(one_bit({{3, 2}}, {1, -100, 3, -200, -8, 0}), ElementsAre(2, -150, 2, -150, -8, 0));
  // Matrices do not mix, nor does a byte of signs that two of them share.
  EXPECT_THAT(one_bit({{2, 1}, {1, 2}, {2, 1}}, {1, 3, -5, 7, 100, 300}), ElementsAre(2, 2, -5, 7, 200, 200));
}

TEST(OneBit, KeepsTheSumOfAColumn) {
  for (const std::size_t rows : {1, 7, 8, 9, 63, 64, 65, 100'003}) {
    const std::vector<float> values = random_values(rows, rows);
    const std::vector<float> decoded = one_bit({{rows, 1}}, values);
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      EXPECT_EQ(std::signbit(values[i]), std::signbit(decoded[i])) << i;
      before += double{values[i]};
      after += double{decoded[i]};
    }
    EXPECT_NEAR(before, after, 1e-7 * static_cast<double>(rows)) << rows;
  }
}

TEST(OneBit, MeansOfLongColumnsDoNotDrown) {
  // Summed in float32, ones stop counting at 2^24.
  const std::vector<float> decoded = one_bit({{(1u << 24) + 1000, 1}}, std::vector<float>((1u << 24) + 1000, 1.0f));
  EXPECT_EQ(decoded.front(), 1.0f);
  EXPECT_EQ(decoded.back(), 1.0f);
}

TEST(OneBit, SizeIsABitPerElementAndTwoMeansPerColumn) {
  EXPECT_EQ(make_one_bit_codec({})->encoded_bytes(), 0u);
  EXPECT_EQ(make_one_bit_codec({{1, 1}})->encoded_bytes(), 9u);
  EXPECT_EQ(make_one_bit_codec({{8, 1}})->encoded_bytes(), 9u);
  EXPECT_EQ(make_one_bit_codec({{9, 1}})->encoded_bytes(), 10u);
  EXPECT_EQ(make_one_bit_codec({{3, 5}, {3, 1}})->encoded_bytes(), 6u * 8 + 3);
}

TEST(OneBit, BitsBehindTheLastElementAreZero) {
  const auto codec = make_one_bit_codec({{3, 1}});
  std::vector<std::byte> blob(codec->encoded_bytes(), std::byte{0xff});
  ASSERT_TRUE(codec->encode(std::vector<float>{-1, 1, 1}, blob));
  EXPECT_EQ(blob.back(), std::byte{6});
}

TEST(TopK, KeepsTheLargestExactly) {
  EXPECT_THAT(top_k(0.4, {1, -5, 0.5f, 4, -0.25f}), ElementsAre(0, -5, 0, 4, 0));
  EXPECT_THAT(top_k(1, {1, -5, 0.5f}), ElementsAre(1, -5, 0.5f));
}

TEST(TopK, OfEqualMagnitudesTheFirstStay) {
  EXPECT_THAT(top_k(0.5, {1, -1, 2, 1, 1, -1}), ElementsAre(1, -1, 2, 0, 0, 0));
  EXPECT_THAT(top_k(0.5, {0, 0, 0, 0}), Each(0.0f));
}

TEST(TopK, SizeIsTheFractionRoundedUp) {
  EXPECT_EQ(make_top_k_codec(0, 0.01)->encoded_bytes(), 0u);
  EXPECT_EQ(make_top_k_codec(1, 0.01)->encoded_bytes(), 8u);
  EXPECT_EQ(make_top_k_codec(100, 0.01)->encoded_bytes(), 8u);
  EXPECT_EQ(make_top_k_codec(101, 0.01)->encoded_bytes(), 16u);
  EXPECT_EQ(make_top_k_codec(7, 1)->encoded_bytes(), 56u);
}

TEST(TopK, ManyValuesAgreeWithSorting) {
  const std::vector<float> values = random_values(10'001, 5);
  std::vector<float> magnitudes;
  for (const float value : values) magnitudes.push_back(std::abs(value));
  std::sort(magnitudes.begin(), magnitudes.end(), std::greater<>());
  const std::vector<float> decoded = top_k(0.03, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(decoded[i], std::abs(values[i]) >= magnitudes[300] ? values[i] : 0) << i;
  }
}

TEST(TopK, AWrongFractionIsRefused) {
  for (const double fraction : {0.0, -1.0, 1.5, static_cast<double>(kNan)}) {
    EXPECT_THROW(make_top_k_codec(10, fraction), std::invalid_argument) << fraction;
  }
}

struct NamedCodec {
  const char* name;
  CodecOptions options;
};
class AnyCodec : public ::testing::TestWithParam<NamedCodec> {
 protected:
  static std::unique_ptr<GradientCodec> codec(std::size_t elements) {
    return make_codec(GetParam().options, {{elements, 1}});
  }
};

TEST_P(AnyCodec, AnEmptyBucketIsAnEmptyBlob) {
  const auto empty = make_codec(GetParam().options, {});
  EXPECT_EQ(empty->encoded_bytes(), 0u);
  EXPECT_TRUE(round_trip(*empty, {}).empty());
}

TEST_P(AnyCodec, DecodingAdds) {
  const auto codec = AnyCodec::codec(33);
  const std::vector<float> values = random_values(33, 1);
  std::vector<std::byte> blob(codec->encoded_bytes());
  ASSERT_TRUE(codec->encode(values, blob));
  std::vector<float> sum(values.size(), 10.0f);
  ASSERT_TRUE(codec->add_decoded(blob, sum));
  const std::vector<float> alone = round_trip(*codec, values);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 10 + alone[i]);
}

TEST_P(AnyCodec, RepeatsByteForByte) {
  const auto codec = AnyCodec::codec(1001);
  const std::vector<float> values = random_values(1001, 2);
  std::vector<std::byte> first(codec->encoded_bytes(), std::byte{1});
  std::vector<std::byte> second(first.size(), std::byte{2});
  ASSERT_TRUE(codec->encode(values, first));
  ASSERT_TRUE(codec->encode(values, second));
  EXPECT_EQ(first, second);
}

TEST_P(AnyCodec, AValueThatIsNotFiniteIsNamedAndReachesTheDecoder) {
  const auto codec = AnyCodec::codec(50);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> values = random_values(50, 3);
    values[17] = bad;
    std::vector<std::byte> blob(codec->encoded_bytes());
    const auto encoded = codec->encode(values, blob);
    ASSERT_FALSE(encoded);
    EXPECT_EQ(encoded.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(encoded.error().message, AllOf(HasSubstr("element 17 of 50"), HasSubstr("smaller rate")));
    std::vector<float> sum(values.size());
    const auto decoded = codec->add_decoded(blob, sum);
    ASSERT_FALSE(decoded);
    EXPECT_THAT(decoded.error().message, HasSubstr("not finite"));
  }
}

TEST_P(AnyCodec, ABlobOfAnotherSizeIsRefused) {
  const auto codec = AnyCodec::codec(40);
  std::vector<float> sum(40);
  for (const std::size_t size : {codec->encoded_bytes() - 1, codec->encoded_bytes() + 1, std::size_t{0}}) {
    const auto decoded = codec->add_decoded(std::vector<std::byte>(size), sum);
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code, ErrorCode::kRemote);
  }
}

// No byte is lost between the steps: what was sent and what is kept back add up to what came in. The two float32
// roundings on the way, of gradient + residual and of its difference to what was sent, are the bound.
TEST_P(AnyCodec, ErrorFeedbackConservesEveryElement) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{9}, std::size_t{1000}}) {
    const auto codec = AnyCodec::codec(count);
    ErrorFeedback feedback(*codec);
    std::vector<std::byte> blob(codec->encoded_bytes());
    for (std::uint64_t step = 0; step < 20; ++step) {
      const std::vector<float> gradient = random_values(count, 100 + step);
      const std::vector<float> before(feedback.residual().begin(), feedback.residual().end());
      ASSERT_TRUE(feedback.encode(gradient, blob));
      std::vector<float> sent(count);
      ASSERT_TRUE(codec->add_decoded(blob, sent));
      for (std::size_t i = 0; i < count; ++i) {
        const double in = double{gradient[i]} + double{before[i]};
        const double out = double{sent[i]} + double{feedback.residual()[i]};
        const double bound = 1e-7 * (std::abs(in) + std::abs(double{sent[i]}));
        ASSERT_NEAR(in, out, bound) << i << " in step " << step;
      }
    }
  }
}

TEST_P(AnyCodec, WhatIsHeldBackIsSentLater) {
  const auto codec = AnyCodec::codec(200);
  // Constant gradients: the mean of what was sent has to approach them, for every element, the small ones too.
  const std::vector<float> gradient = random_values(200, 7);
  ErrorFeedback feedback(*codec);
  std::vector<std::byte> blob(codec->encoded_bytes());
  std::vector<float> sent(gradient.size());
  constexpr int kSteps = 4000;
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(feedback.encode(gradient, blob));
    ASSERT_TRUE(codec->add_decoded(blob, sent));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_NEAR(sent[i] / kSteps, gradient[i], 0.05) << i;
}

TEST_P(AnyCodec, AFailedEncodingLeavesTheResidual) {
  const auto codec = AnyCodec::codec(3);
  ErrorFeedback feedback(*codec);
  std::vector<std::byte> blob(codec->encoded_bytes());
  ASSERT_TRUE(feedback.encode(std::vector<float>{1, -2, 0.5f}, blob));
  const std::vector<float> before(feedback.residual().begin(), feedback.residual().end());
  ASSERT_FALSE(feedback.encode(std::vector<float>{1, kNan, 1}, blob));
  EXPECT_THAT(feedback.residual(), ::testing::ElementsAreArray(before));
}

TEST_P(AnyCodec, EncodedBucketsSumInRankOrder) {
  const auto codec = AnyCodec::codec(21);
  std::vector<std::vector<float>> gradients;
  std::vector<EncodedBucket> buckets;
  for (std::uint64_t rank = 0; rank < 3; ++rank) gradients.push_back(random_values(21, 40 + rank));
  std::vector<float> expected(21);
  for (auto& gradient : gradients) {
    const std::vector<float> decoded = round_trip(*codec, gradient);
    for (std::size_t i = 0; i < decoded.size(); ++i) expected[i] += decoded[i];
    ASSERT_TRUE(buckets.emplace_back(AnyCodec::codec(21), gradient, 3).encode());
  }
  for (EncodedBucket& receiver : buckets) {
    for (std::size_t rank = 0; rank < buckets.size(); ++rank) {
      const auto own = buckets[rank].own();
      std::memcpy(receiver.all().data() + rank * own.size(), own.data(), own.size());
    }
    ASSERT_TRUE(receiver.decode_all());
  }
  for (const auto& gradient : gradients) EXPECT_EQ(gradient, expected);
}

TEST_P(AnyCodec, ADivergedRankIsNamed) {
  std::vector<float> good{1, 2, 3};
  std::vector<float> bad{1, kInfinity, 3};
  EncodedBucket first(codec(3), good, 2);
  EncodedBucket second(codec(3), bad, 2);
  ASSERT_TRUE(first.encode());
  ASSERT_FALSE(second.encode());
  std::memcpy(first.all().data(), first.own().data(), first.own().size());
  std::memcpy(first.all().data() + first.own().size(), second.own().data(), second.own().size());
  const auto decoded = first.decode_all();
  ASSERT_FALSE(decoded);
  EXPECT_THAT(decoded.error().message, AllOf(HasSubstr("from rank 1"), HasSubstr("not finite")));
  second.decode_own();
  EXPECT_FALSE(second.check_sum());
}

INSTANTIATE_TEST_SUITE_P(Codecs, AnyCodec,
                         ::testing::Values(NamedCodec{"onebit", {.codec = Codec::kOneBit}},
                                           NamedCodec{"topk", {.codec = Codec::kTopK, .topk_fraction = 0.05}},
                                           NamedCodec{"topk_all", {.codec = Codec::kTopK, .topk_fraction = 1}}),
                         [](const auto& codec) { return std::string(codec.param.name); });

TEST(TopKBlob, AnIndexBehindTheBucketIsRefused) {
  const auto codec = make_top_k_codec(2, 0.5);
  std::vector<float> sum(2);
  std::vector<std::byte> blob(codec->encoded_bytes());
  const std::uint32_t index = 2;
  std::memcpy(blob.data(), &index, sizeof index);
  const auto decoded = codec->add_decoded(blob, sum);
  ASSERT_FALSE(decoded);
  EXPECT_THAT(decoded.error().message, AllOf(HasSubstr("element 2"), HasSubstr("0 to 1")));
}

TEST(Codecs, NoneIsNoCodec) { EXPECT_EQ(make_codec({}, {{2, 2}}), nullptr); }

}  // namespace
}  // namespace clustar::bench::trainer
