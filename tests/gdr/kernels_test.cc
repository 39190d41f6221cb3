// The kernels of gdr/kernels against float64, with odd sizes and unaligned ends. Their blocks run on fibers: under
// AddressSanitizer every access is looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gdr/kernels/arguments.h"
#include "tests/gdr/emulated_device/block.h"

namespace clustar::gdr {
namespace {

using emulated::Dim3;

template <class Argument>
void launch(const Kernel<Argument>& kernel, const Argument& argument, unsigned grid, unsigned block,
            std::uint64_t order) {
  const emulated::KernelEntry* entry = emulated::find_kernel(kernel.name);
  ASSERT_NE(entry, nullptr) << kernel.name;
  ASSERT_EQ(entry->argument_bytes, sizeof(Argument)) << kernel.name;
  EXPECT_EQ(emulated::run(*entry, Dim3{grid}, Dim3{block}, &argument, order), "");
}

// 16 bits as a number, by the definition of IEEE 754's binary16 and of bfloat16.
struct Format {
  int mantissa_bits;
  int bias;
};
constexpr Format kHalf{10, 15};
constexpr Format kBfloat{7, 127};

double value_of(std::uint16_t bits, const Format& format) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 2 * format.bias + 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  const int implicit = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  return sign * std::ldexp(mantissa + implicit, std::max(exponent, 1) - format.bias - format.mantissa_bits);
}

// The nearest number of the format, ties to even.
double rounded(double value, const Format& format) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), 1 - format.bias);
  const double step = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double nearest = std::nearbyint(value / step) * step;
  const double above = std::ldexp(1.0, format.bias + 1);
  return std::abs(nearest) >= above ? std::copysign(std::numeric_limits<double>::infinity(), value) : nearest;
}

// Exactly so many bytes, of which AddressSanitizer knows the end; `offset` of them are not used.
template <class T>
class Elements {
 public:
  Elements(std::size_t count, std::size_t offset) : all_(count + offset), offset_(offset) {}
  T* data() { return all_.data() + offset_; }
  std::size_t size() const { return all_.size() - offset_; }
  T& operator[](std::size_t i) { return data()[i]; }

 private:
  std::vector<T> all_;
  std::size_t offset_;
};

constexpr std::uint64_t kOrders[]{0, 1, 2, 3};
constexpr std::size_t kCounts[]{1, 3, 8, 31, 257, 1000, 4099};

template <class T, class Draw, class Value>
void check_importance(const Kernel<ImportanceArguments>& kernel, const Draw& draw, const Value& value) {
  std::mt19937_64 random(11);
  for (const std::size_t count : kCounts) {
    for (const std::size_t offset : {0u, 1u, 5u}) {
      for (const unsigned long long per_block : {1ull, 7ull, 362ull, 512ull}) {
        if (count > 100 * per_block) continue;  // as many shuffles as blocks, without more cases
        Elements<T> values(count, offset);
        for (std::size_t i = 0; i < count; ++i) values[i] = draw(random);
        const std::size_t blocks = (count + per_block - 1) / per_block;
        std::vector<float> first;
        for (const std::uint64_t order : kOrders) {
          std::vector<float> sums(blocks, -1);
          launch(kernel, {values.data(), count, per_block, sums.data()}, 3, 64, order);
          if (first.empty()) first = sums;
          ASSERT_EQ(std::memcmp(sums.data(), first.data(), blocks * sizeof(float)), 0) << "order " << order;
        }
        for (std::size_t b = 0; b < blocks; ++b) {
          double expected = 0;
          for (std::size_t i = b * per_block; i < std::min<std::size_t>((b + 1) * per_block, count); ++i) {
            expected += std::abs(value(values[i]));
          }
          ASSERT_NEAR(first[b], expected, 1e-5 * expected) << count << " values, offset " << offset << ", block " << b;
        }
      }
    }
  }
}

float small_float(std::mt19937_64& random) { return static_cast<float>(std::normal_distribution<>(0, 0.01)(random)); }
std::uint16_t finite_half(std::mt19937_64& random) { return static_cast<std::uint16_t>(random() & 0xbbff); }
std::uint16_t small_bfloat(std::mt19937_64& random) {
  return static_cast<std::uint16_t>((random() & 0x807f) | ((100 + random() % 30) << 7));
}

TEST(Importance, IsTheSumOfMagnitudesOfEachBlock) {
  check_importance<float>(kImportanceF32, small_float, [](float v) { return double{v}; });
}
TEST(Importance, OfHalves) {
  check_importance<std::uint16_t>(kImportanceF16, finite_half, [](std::uint16_t v) { return value_of(v, kHalf); });
}
TEST(Importance, OfBfloats) {
  check_importance<std::uint16_t>(kImportanceBf16, small_bfloat, [](std::uint16_t v) { return value_of(v, kBfloat); });
}

TEST(ZeroRanges, ZeroesTheseAndNothingElse) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    const std::size_t bytes = 1 + random() % 5000;
    Elements<unsigned char> memory(bytes, random() % 16);
    std::vector<unsigned char> expected(bytes);
    for (std::size_t i = 0; i < bytes; ++i) expected[i] = memory[i] = static_cast<unsigned char>(1 + random() % 255);
    std::vector<unsigned long long> ranges;
    for (std::size_t at = random() % 50; at < bytes;) {
      const std::size_t length = std::min<std::size_t>(random() % 400, bytes - at);
      ranges.insert(ranges.end(), {at, length});
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at), length, 0);
      at += length + random() % 60;
    }
    launch(kZeroRanges, {memory.data(), ranges.data(), ranges.size() / 2}, 4, 96, static_cast<std::uint64_t>(round));
    ASSERT_EQ(std::vector<unsigned char>(memory.data(), memory.data() + bytes), expected) << "round " << round;
  }
}

TEST(Rescale, OfShortSumsIsThatOfFloat64Rounded) {
  std::mt19937_64 random(7);
  constexpr unsigned kRanks = 5;
  for (int round = 0; round < 40; ++round) {
    const std::size_t count = 1 + random() % 3000;
    Elements<float> values(count, random() % 4);
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = values[i] = static_cast<float>(static_cast<double>(random() % 2'000'001) / 1e3 - 1e3);
    }
    std::vector<unsigned long long> segments;
    for (std::size_t at = random() % 20; at < count;) {
      const std::size_t length = std::min<std::size_t>(random() % 300, count - at);  // 0: none
      const auto contributions = 1 + random() % kRanks;
      segments.insert(segments.end(), {at, length, contributions});
      for (std::size_t i = at; i < at + length; ++i) {
        expected[i] =
            static_cast<float>(static_cast<double>(expected[i]) * kRanks / static_cast<double>(contributions));
      }
      at += length + random() % 40;
    }
    launch(kRescaleF32, {values.data(), segments.data(), segments.size() / 3, kRanks}, 3, 64,
           static_cast<std::uint64_t>(round));
    ASSERT_EQ(std::vector<float>(values.data(), values.data() + count), expected) << "round " << round;
  }
}

template <class T, class Draw, class Check>
void check_sum(const Kernel<SumArguments>& kernel, const Draw& draw, const Check& check) {
  std::mt19937_64 random(23);
  for (const std::size_t count : kCounts) {
    for (const std::size_t offset : {0u, 1u, 3u}) {
      for (const std::size_t more_offset : {0u, 1u}) {
        Elements<T> sum(count, offset), more(count, more_offset), before(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
          before[i] = sum[i] = draw(random);
          more[i] = draw(random);
        }
        launch(kernel, {sum.data(), more.data(), count}, 2, 128, offset);
        for (std::size_t i = 0; i < count; ++i) check(before[i], more[i], sum[i]);
      }
    }
  }
}

TEST(Sum, OfFloatsIsThatOfFloat64Rounded) {
  check_sum<float>(kSumF32, small_float,
                   [](float a, float b, float sum) { ASSERT_EQ(sum, static_cast<float>(double{a} + double{b})); });
}
TEST(Sum, OfDoubles) {
  check_sum<double>(
      kSumF64, [](auto& random) { return std::normal_distribution<>(0, 1)(random); },
      [](double a, double b, double sum) { ASSERT_EQ(sum, a + b); });
}
TEST(Sum, OfHalvesRoundsOnce) {
  check_sum<std::uint16_t>(kSumF16, finite_half, [](std::uint16_t a, std::uint16_t b, std::uint16_t sum) {
    ASSERT_EQ(value_of(sum, kHalf), rounded(value_of(a, kHalf) + value_of(b, kHalf), kHalf)) << a << " + " << b;
  });
}
TEST(Sum, OfBfloatsRoundsOnce) {
  check_sum<std::uint16_t>(kSumBf16, small_bfloat, [](std::uint16_t a, std::uint16_t b, std::uint16_t sum) {
    ASSERT_EQ(value_of(sum, kBfloat), rounded(value_of(a, kBfloat) + value_of(b, kBfloat), kBfloat)) << a << " + " << b;
  });
}
template <class T>
void check_wrapping(const Kernel<SumArguments>& kernel) {
  check_sum<T>(
      kernel, [](auto& random) { return static_cast<T>(random()); },
      [](T a, T b, T sum) { ASSERT_EQ(sum, static_cast<T>(a + b)); });
}
TEST(Sum, OfIntegersWraps) {
  check_wrapping<std::uint8_t>(kSumI8);
  check_wrapping<std::uint32_t>(kSumI32);
  check_wrapping<std::uint64_t>(kSumI64);
}

// Every number of 16 bits through both conversions: with nothing added it stays what it is.
void check_all_patterns(const Kernel<SumArguments>& kernel, const Format& format) {
  std::vector<std::uint16_t> sum(65536), nothing(65536, 0x8000);  // -0, which leaves -0 as it is
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<std::uint16_t>(i);
  launch(kernel, {sum.data(), nothing.data(), sum.size()}, 8, 256, 0);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double before = value_of(static_cast<std::uint16_t>(i), format);
    if (std::isnan(before)) {
      ASSERT_TRUE(std::isnan(value_of(sum[i], format))) << i;
    } else {
      ASSERT_EQ(sum[i], i);
    }
  }
}
TEST(Sum, EveryHalfAndBfloatStaysWhatItIs) {
  check_all_patterns(kSumF16, kHalf);
  check_all_patterns(kSumBf16, kBfloat);
}

}  // namespace
}  // namespace clustar::gdr
