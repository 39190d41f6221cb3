#include "tests/nccl_host/kernels/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace nccl_host {
namespace {

template <class T>
T Combined(Operator op, Datatype type, T a, T b, uint64_t argument = 0) {
  T result{};
  Reduction(op, type, argument).Combine(&result, &a, &b, 1);
  return result;
}

TEST(Bfloat16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(Bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(float(Bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Reduction, IntegersWrap) {
  EXPECT_EQ(Combined<uint8_t>(Operator::kSum, Datatype::kUint8, 255, 2), 1);
  EXPECT_EQ(Combined<int32_t>(Operator::kProd, Datatype::kInt32, 1 << 30, 4), 0);
  EXPECT_EQ(Combined<int64_t>(Operator::kSum, Datatype::kInt64, -5, 3), -2);
}

TEST(Reduction, HalvesRoundAfterEveryOperation) {
  EXPECT_EQ(float(Combined<Float16>(Operator::kSum, Datatype::kFloat16, Float16(2048), Float16(1))), 2048.0f);
  EXPECT_EQ(float(Combined<Bfloat16>(Operator::kSum, Datatype::kBfloat16, 256.0f, 1.0f)), 256.0f);
}

// The argument XORs the sign bit of signed types, and all bits to turn min into max.
TEST(Reduction, MinAndMaxOfIntegers) {
  EXPECT_EQ(Combined<int8_t>(Operator::kMinMax, Datatype::kInt8, -3, 2, 0x80), -3);
  EXPECT_EQ(Combined<int8_t>(Operator::kMinMax, Datatype::kInt8, -3, 2, 0x7f), 2);
  EXPECT_EQ(Combined<uint32_t>(Operator::kMinMax, Datatype::kUint32, 3000000000u, 2, 0), 2u);
  EXPECT_EQ(Combined<uint32_t>(Operator::kMinMax, Datatype::kUint32, 3000000000u, 2, 0xffffffff), 3000000000u);
}

TEST(Reduction, MinAndMaxOfFloats) {
  EXPECT_EQ(Combined<float>(Operator::kMinMax, Datatype::kFloat32, -1.5f, 2.0f, 0), -1.5f);
  EXPECT_EQ(Combined<float>(Operator::kMinMax, Datatype::kFloat32, -1.5f, 2.0f, 1), 2.0f);
  // Apart only in double.
  const double more = 1.0 + std::numeric_limits<double>::epsilon();
  EXPECT_EQ(Combined<double>(Operator::kMinMax, Datatype::kFloat64, 1.0, more, 1), more);
  EXPECT_EQ(Combined<double>(Operator::kMinMax, Datatype::kFloat64, 1.0, more, 0), 1.0);
}

TEST(Reduction, PreMultipliesThisRanksShare) {
  const float factor = 0.25f;
  const Reduction reduction(Operator::kPreMulSum, Datatype::kFloat32, std::bit_cast<uint32_t>(factor));
  float value = 8;
  ASSERT_TRUE(reduction.has_before());
  reduction.Before(&value, &value, 1);
  EXPECT_EQ(value, 2.0f);
}

TEST(Reduction, AverageOfIntegersTruncatesTowardsZero) {
  int8_t signed_value = -7;
  Reduction(Operator::kSumPostDiv, Datatype::kInt8, 2 << 1 | 1).After(&signed_value, 1);
  EXPECT_EQ(signed_value, -3);
  uint8_t unsigned_value = 249;
  Reduction(Operator::kSumPostDiv, Datatype::kUint8, 2 << 1).After(&unsigned_value, 1);
  EXPECT_EQ(unsigned_value, 124);
}

}  // namespace
}  // namespace nccl_host
