// Every version of the kernels against one reference, bit by bit.
#include "paraexpress/sums/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "bench/proxy/reduce.h"
#include "tests/unit/paraexpress/sums/reference.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

constexpr std::array kSets{InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512};
constexpr std::array kTypes{DataType::kInt8,    DataType::kUint8,   DataType::kInt32,   DataType::kUint32,
                            DataType::kInt64,   DataType::kUint64,  DataType::kFloat16, DataType::kFloat32,
                            DataType::kFloat64, DataType::kBfloat16};
constexpr std::array kOps{Reduction::kSum, Reduction::kMax};

using Bytes = std::vector<std::byte>;

// Any bits: of a float16 every 32nd is an infinity or a NaN, of a float every 256th; half of the words are numbers of
// similar size instead, which is where rounding happens, or special ones.
Bytes random_bytes(Rng& rng, std::size_t bytes, DataType type) {
  Bytes result(bytes + 8);
  constexpr std::array<std::uint64_t, 8> kSpecial{0x7f80000000000000, 0xff80000000000000, 0x7f80000100000000,
                                                  0x0000000100000001, 0x8000800080008000, 0x7ff0000000000000,
                                                  0xfff8000000000001, 0x7c007e01fc00fdff};
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = rng.next();
    const std::uint64_t choice = word % 8;
    if (choice == 0) word = kSpecial[rng.next() % kSpecial.size()];
    if (choice == 1) word &= 0x800f800f800f800f;  // denormals
    // The exponents of numbers about 1.
    if (choice > 4 && type == DataType::kFloat32) word = (word & 0x81ffffff81ffffff) | 0x3c0000003c000000;
    if (choice > 4 && type == DataType::kFloat64) word = (word & 0x807fffffffffffff) | 0x3f80000000000000;
    std::memcpy(result.data() + at, &word, 8);
  }
  result.resize(bytes);
  return result;
}

std::string hex(const std::byte* bytes, std::size_t length) {
  std::string text;
  for (std::size_t i = length; i-- > 0;) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(bytes[i]) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(bytes[i]) & 15];
  }
  return text;
}

// The first element that differs, with its inputs.
::testing::AssertionResult same(const std::byte* got, const Bytes& expected, std::size_t element,
                                const std::vector<Bytes>& inputs, std::size_t offset) {
  for (std::size_t i = 0; i < expected.size(); i += element) {
    if (std::equal(got + i, got + i + element, expected.begin() + static_cast<std::ptrdiff_t>(i))) continue;
    auto result = ::testing::AssertionFailure() << "element " << i / element << ": " << hex(got + i, element)
                                                << ", not " << hex(expected.data() + i, element) << ", from";
    for (const Bytes& input : inputs) result << " " << hex(input.data() + offset + i, element);
    return result;
  }
  return ::testing::AssertionSuccess();
}

class Reduce : public ::testing::TestWithParam<std::tuple<InstructionSet, DataType, Reduction>> {
 protected:
  void SetUp() override {
    std::tie(set_, type_, op_) = GetParam();
    element_ = element_bytes(type_);
    if (!supported(set_)) GTEST_SKIP() << "this CPU has no " << name_of(set_) << "; run the test on one that has";
  }

  std::vector<Bytes> inputs_of(std::size_t n, std::size_t bytes) {
    std::vector<Bytes> inputs;
    for (std::size_t i = 0; i < n; ++i) inputs.push_back(random_bytes(rng_, bytes, type_));
    return inputs;
  }
  static std::vector<const void*> pointers(const std::vector<Bytes>& inputs, std::size_t offset) {
    std::vector<const void*> result;
    for (const Bytes& input : inputs) result.push_back(input.data() + offset);
    return result;
  }

  InstructionSet set_{};
  DataType type_{};
  Reduction op_{};
  std::size_t element_ = 1;
  Rng rng_{31};
};
INSTANTIATE_TEST_SUITE_P(All, Reduce,
                         ::testing::Combine(::testing::ValuesIn(kSets), ::testing::ValuesIn(kTypes),
                                            ::testing::ValuesIn(kOps)),
                         [](const auto& test) {
                           std::string name = name_of(std::get<0>(test.param));
                           std::erase(name, '-');
                           return name + "_" + name_of(std::get<1>(test.param)) +
                                  (std::get<2>(test.param) == Reduction::kSum ? "_sum" : "_max");
                         });

TEST_P(Reduce, EveryLengthAndNumberOfInputs) {
  for (std::size_t count = 0; count < 700; count = count * 9 / 8 + 1) {
    for (const std::size_t n : {1u, 2u, 3u, 4u, 9u}) {
      const auto inputs = inputs_of(n, count * element_);
      const auto from = pointers(inputs, 0);
      Bytes out(count * element_ + 1, std::byte{0x5a});
      reduce_into(out.data(), from, count, type_, op_, set_);
      ASSERT_TRUE(same(out.data(), tests::reference(from, count, type_, op_), element_, inputs, 0))
          << count << " elements of " << n << " inputs";
      ASSERT_EQ(out.back(), std::byte{0x5a}) << "wrote behind the end";
    }
  }
}

TEST_P(Reduce, AnyAddress) {
  constexpr std::size_t kCount = 300;
  for (std::size_t offset = 0; offset < 17; ++offset) {
    const auto inputs = inputs_of(3, kCount * element_ + offset);
    const auto from = pointers(inputs, offset);
    Bytes out(kCount * element_ + 2 * offset);
    reduce_into(out.data() + 2 * offset, from, kCount, type_, op_, set_);
    ASSERT_TRUE(same(out.data() + 2 * offset, tests::reference(from, kCount, type_, op_), element_, inputs, offset))
        << offset;
  }
}

TEST_P(Reduce, TheResultMayBeAnyOfTheInputs) {
  constexpr std::size_t kCount = 333;
  for (std::size_t n = 1; n < 5; ++n) {
    for (std::size_t place = 0; place < n; ++place) {
      auto inputs = inputs_of(n, kCount * element_);
      const auto before = inputs;
      const auto expected = tests::reference(pointers(inputs, 0), kCount, type_, op_);
      reduce_into(inputs[place].data(), pointers(inputs, 0), kCount, type_, op_, set_);
      ASSERT_TRUE(same(inputs[place].data(), expected, element_, before, 0)) << "input " << place << " of " << n;
    }
  }
}

// Long results are written past the caches.
TEST_P(Reduce, LongArrays) {
  const std::size_t count = (std::size_t{8} << 20) / element_ + 77;
  const auto inputs = inputs_of(2, count * element_ + 3);
  Bytes out(count * element_ + 68), plain(count * element_);
  for (const std::size_t offset : {std::size_t{0}, element_, std::size_t{3}}) {
    const auto from = pointers(inputs, offset % 4);
    // The portable version is judged against the reference, and judges the others.
    reduce_into(plain.data(), from, count, type_, op_, InstructionSet::kPortable);
    reduce_into(out.data() + offset, from, count, type_, op_, set_);
    ASSERT_TRUE(same(out.data() + offset, plain, element_, inputs, offset % 4)) << offset;
    for (std::size_t i = 0; i < offset; ++i) ASSERT_EQ(out[i], std::byte{0}) << "wrote before the start";
    std::fill(out.begin(), out.end(), std::byte{0});
  }
  if (set_ == InstructionSet::kPortable) {
    ASSERT_TRUE(same(plain.data(), tests::reference(pointers(inputs, 3), count, type_, op_), element_, inputs, 3));
  }
}

// All numbers of 16 bits, each with many partners.
TEST_P(Reduce, EveryNumberOf16Bits) {
  if (element_ != 2) return;
  std::vector<Bytes> inputs(2, Bytes(2 * 65536));
  for (unsigned i = 0; i < 65536; ++i) tests::put(inputs[0], i, static_cast<std::uint16_t>(i));
  for (int round = 0; round < 8; ++round) {
    // Near ones among them: their sums need rounding, their differences are small.
    const auto mask = static_cast<std::uint16_t>(0xffff >> round);
    for (unsigned i = 0; i < 65536; ++i) {
      tests::put(inputs[1], i, static_cast<std::uint16_t>(i ^ (rng_.next() & mask) ^ (round % 2 ? 0x8000u : 0u)));
    }
    for (const std::size_t n : {1u, 2u}) {
      Bytes out(inputs[0].size());
      const auto from = pointers(inputs, 0);
      reduce_into(out.data(), std::span(from).first(n), 65536, type_, op_, set_);
      ASSERT_TRUE(same(out.data(), tests::reference(std::span(from).first(n), 65536, type_, op_), element_, inputs, 0));
    }
  }
}

template <class T>
T sum_of(std::vector<T> values, DataType type, InstructionSet set) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T out{};
  reduce_into(&out, inputs, 1, type, Reduction::kSum, set);
  return out;
}

TEST(Sums, AreTakenFromLeftToRight) {
  const std::vector<float> last_is_lost{1e8f, -1e8f, 1.0f}, first_is_lost{1.0f, 1e8f, -1e8f};
  EXPECT_EQ(sum_of(last_is_lost, DataType::kFloat32, widest()), 1.0f);
  EXPECT_EQ(sum_of(first_is_lost, DataType::kFloat32, widest()), 0.0f);
}

TEST(Sums, OfSmallFloatsRoundOnce) {
  // 2048 + 1 + 1: the ones are lost to a float16 by and by, not together.
  const std::vector<std::uint16_t> halves{0x6800, 0x3c00, 0x3c00};
  EXPECT_EQ(sum_of(halves, DataType::kFloat16, widest()), 0x6801);
  const std::uint16_t first = sum_of(std::vector<std::uint16_t>{halves[0], halves[1]}, DataType::kFloat16, widest());
  EXPECT_EQ(sum_of(std::vector<std::uint16_t>{first, halves[2]}, DataType::kFloat16, widest()), 0x6800);
  // 256 + 1 + 1 in bfloat16.
  EXPECT_EQ(sum_of(std::vector<std::uint16_t>{0x4380, 0x3f80, 0x3f80}, DataType::kBfloat16, widest()), 0x4381);
}

TEST(Sums, OfNothingWriteNothing) {
  std::uint32_t out = 7;
  sum_into(&out, {}, 1, DataType::kUint32);
  EXPECT_EQ(out, 7u);
}

// bench/proxy keeps its own arithmetic, so that it can judge this one.
template <class T>
void compare_with_the_proxy(DataType type, bench::proxy::DataType theirs) {
  Rng rng(17);
  std::vector<T> a(1000), b(1000), expected(1000), got(1000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<T>(static_cast<std::int32_t>(rng.next()));
    b[i] = static_cast<T>(static_cast<std::int32_t>(rng.next()));
  }
  for (const Reduction op : kOps) {
    const auto their_op = op == Reduction::kSum ? bench::proxy::ReduceOp::kSum : bench::proxy::ReduceOp::kMax;
    bench::proxy::combine(expected.data(), b.data(), a.data(), a.size(), theirs, their_op);
    const std::array<const void*, 2> inputs{a.data(), b.data()};
    reduce_into(got.data(), inputs, a.size(), type, op);
    EXPECT_EQ(got, expected) << name_of(type);
  }
}

TEST(Sums, AreTheProxys) {
  compare_with_the_proxy<float>(DataType::kFloat32, bench::proxy::DataType::kFloat32);
  compare_with_the_proxy<double>(DataType::kFloat64, bench::proxy::DataType::kFloat64);
  compare_with_the_proxy<std::int32_t>(DataType::kInt32, bench::proxy::DataType::kInt32);
  compare_with_the_proxy<std::uint8_t>(DataType::kUint8, bench::proxy::DataType::kUint8);
}

TEST(InstructionSets, TheWidestIsSupported) {
  EXPECT_TRUE(supported(widest()));
  EXPECT_TRUE(supported(InstructionSet::kPortable));
  for (const InstructionSet set : kSets) {
    EXPECT_TRUE(!supported(set) || set <= widest()) << name_of(set);
  }
}

}  // namespace
}  // namespace clustar::paraexpress
