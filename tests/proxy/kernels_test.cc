// The arithmetic and the LL / LL128 line formats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "bench/proxy/line_codec.h"
#include "bench/proxy/reduce.h"
#include "bench/proxy/slice_kernel.h"
#include "tests/half_reference.h"
#include "tests/proxy/collectives.h"

namespace clustar::bench::proxy {
namespace {

template <class T>
void check_combine(DataType type) {
  const std::vector<T> a{1, 2, 100, std::numeric_limits<T>::max(), 0, 7, 9};
  const std::vector<T> b{5, 1, 100, 1, 0, 8, 3};
  std::vector<T> sum(a.size());
  std::vector<T> maximum = b;
  combine(sum.data(), a.data(), b.data(), a.size(), type, ReduceOp::kSum);
  combine(maximum.data(), a.data(), maximum.data(), a.size(), type, ReduceOp::kMax);
  for (std::size_t i = 0; i < a.size(); ++i) {
    // Index 3 overflows; integers wrap in a test of their own.
    if (i != 3) {
      EXPECT_EQ(sum[i], static_cast<T>(a[i] + b[i]));
    }
    EXPECT_EQ(maximum[i], std::max(a[i], b[i]));
  }
}

TEST(Reduce, AllTypesAndOps) {
  check_combine<float>(DataType::kFloat32);
  check_combine<double>(DataType::kFloat64);
  check_combine<std::int32_t>(DataType::kInt32);
  check_combine<std::uint8_t>(DataType::kUint8);
}

template <class Half>
void check_halves(DataType type) {
  std::vector<Half> a, b, sums, greatest;
  for (int i = 0; i < 3000; ++i) {
    a.push_back(value_of<Half>(0, static_cast<std::size_t>(i)));
    b.push_back(Half(std::ldexp(static_cast<double>(value_of<Half>(1, static_cast<std::size_t>(i))), i % 40 - 20)));
    sums.push_back(a.back() + b.back());
    greatest.push_back(std::max(b.back(), a.back()));
  }
  std::vector<Half> out(a.size());
  combine(out.data(), a.data(), b.data(), a.size(), type, ReduceOp::kSum);
  EXPECT_TRUE(same_bits(out, sums));
  combine(out.data(), a.data(), b.data(), a.size(), type, ReduceOp::kMax);
  EXPECT_TRUE(same_bits(out, greatest));
  const Half infinity(std::numeric_limits<double>::infinity());
  combine(out.data(), &infinity, a.data(), 1, type, ReduceOp::kSum);
  EXPECT_EQ(out[0].bits, infinity.bits);
  const Half minus(-std::numeric_limits<double>::infinity());
  combine(out.data(), &infinity, &minus, 1, type, ReduceOp::kSum);
  EXPECT_TRUE(std::isnan(static_cast<double>(out[0])));
}

TEST(Reduce, SixteenBitSumsAreRoundedOnce) {
  check_halves<clustar::tests::Float16>(DataType::kFloat16);
  check_halves<clustar::tests::Bfloat16>(DataType::kBfloat16);
}

TEST(Reduce, IntegerSumsWrap) {
  const std::int32_t a = std::numeric_limits<std::int32_t>::max();
  const std::int32_t b = 1;
  std::int32_t out = 0;
  combine(&out, &a, &b, 1, DataType::kInt32, ReduceOp::kSum);
  EXPECT_EQ(out, std::numeric_limits<std::int32_t>::min());
  const std::uint8_t c = 200;
  std::uint8_t small = 0;
  combine(&small, &c, &c, 1, DataType::kUint8, ReduceOp::kSum);
  EXPECT_EQ(small, 144);
}

class LineCodec : public ::testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Protocols, LineCodec, ::testing::Values(Protocol::kLL, Protocol::kLL128),
                         [](const auto& test) { return test.param == Protocol::kLL ? "LL" : "LL128"; });

TEST_P(LineCodec, RoundTripOfAnySize) {
  for (std::size_t bytes = 0; bytes < 5000; bytes = bytes * 3 / 2 + 1) {
    std::vector<std::uint8_t> payload(bytes);
    std::iota(payload.begin(), payload.end(), std::uint8_t{1});
    std::vector<std::uint64_t> wire(wire_bytes(GetParam(), bytes) / 8 + 1, ~0ull);
    pack_lines(GetParam(), payload.data(), bytes, 9, wire.data());
    EXPECT_EQ(wire.back(), ~0ull) << "wrote beyond the size on the wire";
    std::vector<std::uint8_t> back(bytes);
    ASSERT_TRUE(unpack_lines(GetParam(), wire.data(), bytes, 9, back.data()));
    EXPECT_EQ(back, payload);
    EXPECT_EQ(unpack_lines(GetParam(), wire.data(), bytes, 10, back.data()), bytes == 0);
  }
}

TEST_P(LineCodec, OneMissingLineIsSeen) {
  const std::size_t bytes = 4000;
  const std::vector<std::uint8_t> payload(bytes, 0x5a);
  std::vector<std::uint64_t> wire(wire_bytes(GetParam(), bytes) / 8);
  const std::size_t line = (GetParam() == Protocol::kLL ? kLlLineBytes : kLl128LineBytes) / 8;
  for (std::size_t at = 0; at < wire.size(); at += line) {
    pack_lines(GetParam(), payload.data(), bytes, 3, wire.data());
    std::fill_n(wire.begin() + static_cast<std::ptrdiff_t>(at), line, 0);
    std::vector<std::uint8_t> back(bytes);
    ASSERT_FALSE(unpack_lines(GetParam(), wire.data(), bytes, 3, back.data()));
  }
}

TEST(LineCodec, SizesOnTheWire) {
  EXPECT_EQ(wire_bytes(Protocol::kSimple, 1000), 1000u);
  EXPECT_EQ(wire_bytes(Protocol::kLL, 1), 16u);
  EXPECT_EQ(wire_bytes(Protocol::kLL, 1000), 2000u);
  EXPECT_EQ(wire_bytes(Protocol::kLL128, 1), 2048u);
  EXPECT_EQ(wire_bytes(Protocol::kLL128, 1920), 2048u);
  EXPECT_EQ(wire_bytes(Protocol::kLL128, 1921), 4096u);
  EXPECT_EQ(buffer_bytes(Protocol::kSimple), 4u << 20);
  EXPECT_EQ(buffer_bytes(Protocol::kLL), 512u << 10);
  EXPECT_EQ(buffer_bytes(Protocol::kLL128), 4'915'200u);
  for (const Protocol p : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128}) {
    EXPECT_EQ(wire_bytes(p, wire_shape(p).step_payload), wire_shape(p).step_bytes);
  }
}

TEST(SliceKernel, ReducesStraightIntoTheSendSlot) {
  SliceKernel kernel(Protocol::kSimple);
  const std::vector<float> own{1, 2, 3};
  const std::vector<float> received{10, 20, 30};
  std::vector<float> out(3);
  std::vector<float> sent(3);
  SliceAction action;
  action.receive = action.reduce = action.copy = action.send = true;
  action.count = 3;
  SliceMemory memory;
  memory.input = reinterpret_cast<const std::byte*>(own.data());
  memory.output = reinterpret_cast<std::byte*>(out.data());
  memory.receive_slot = reinterpret_cast<const std::byte*>(received.data());
  memory.send_slot = reinterpret_cast<std::byte*>(sent.data());
  ASSERT_TRUE(kernel.run(action, memory, DataType::kFloat32, ReduceOp::kSum));
  EXPECT_EQ(sent, (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(out, sent);
}

}  // namespace
}  // namespace clustar::bench::proxy
