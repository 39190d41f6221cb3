// 16-bit floats by their definition, in double precision: what the conversions of transport/base/half.h, and sums over
// them, are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace clustar::tests {

// `kDigits` of the significand, the hidden one included; `kExponents` bits of the exponent.
template <int kDigits, int kExponents>
struct Half {
  static constexpr int kBias = (1 << (kExponents - 1)) - 1;
  static constexpr int kLeast = 2 - kBias - kDigits;  // the least denormal is 2^kLeast
  static constexpr std::uint16_t kInfinity = static_cast<std::uint16_t>(((1 << kExponents) - 1) << (kDigits - 1));

  std::uint16_t bits = 0;

  Half() = default;
  explicit Half(double value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) {
      bits = kInfinity | 1 << (kDigits - 2);
      return;
    }
    int exponent = 0;
    std::frexp(value, &exponent);
    const int unit = std::max(exponent - kDigits, kLeast);
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(std::abs(value), -unit)), unit);
    const double fraction = 2 * std::frexp(rounded, &exponent);  // 1 to 2
    const int biased = rounded == 0 ? 0 : exponent - 1 + kBias;
    if (std::isinf(value) || biased >= (1 << kExponents) - 1) {
      bits = sign | kInfinity;
    } else if (biased <= 0) {
      bits = static_cast<std::uint16_t>(sign | static_cast<int>(std::ldexp(rounded, -kLeast)));
    } else {
      const int below = static_cast<int>(std::ldexp(fraction - 1, kDigits - 1));
      bits = static_cast<std::uint16_t>(sign | biased << (kDigits - 1) | below);
    }
  }
  explicit operator double() const {
    const int exponent = (bits & 0x7fff) >> (kDigits - 1);
    const int fraction = bits & ((1 << (kDigits - 1)) - 1);
    double magnitude = exponent == 0 ? std::ldexp(fraction, kLeast)
                                     : std::ldexp(fraction + (1 << (kDigits - 1)), exponent - 1 + kLeast);
    if (exponent == (1 << kExponents) - 1) {
      magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
  friend Half operator+(Half a, Half b) { return Half(static_cast<double>(a) + static_cast<double>(b)); }
  friend double operator+(Half a) { return static_cast<double>(a); }
  friend bool operator<(Half a, Half b) { return static_cast<double>(a) < static_cast<double>(b); }
};
using Float16 = Half<11, 5>;
using Bfloat16 = Half<8, 8>;

}  // namespace clustar::tests
