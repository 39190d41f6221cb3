// What a reduction is, element by element in double, int64 and uint64, and without a line of the library's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "paraexpress/sums/reduce.h"

namespace clustar::tests {

// A binary float of 16 bits with so many bits of fraction.
template <int Fraction>
struct Small {
  static constexpr int kExponentBits = 15 - Fraction, kBias = (1 << (kExponentBits - 1)) - 1,
                       kLeast = 1 - kBias - Fraction;
  static constexpr unsigned kInfinity = ((1u << kExponentBits) - 1) << Fraction;

  static double value(std::uint16_t bits) {
    const unsigned magnitude = bits & 0x7fffu, exponent = magnitude >> Fraction;
    const unsigned fraction = magnitude & ((1u << Fraction) - 1);
    double value = std::ldexp(fraction, kLeast);
    if (exponent > 0) value = std::ldexp(fraction + (1u << Fraction), kLeast + static_cast<int>(exponent) - 1);
    if (magnitude == kInfinity) value = std::numeric_limits<double>::infinity();
    if (magnitude > kInfinity) return std::numeric_limits<double>::quiet_NaN();
    return bits & 0x8000u ? -value : value;
  }
  static std::uint16_t bits(double value) {
    if (std::isnan(value)) return kInfinity | 1u << (Fraction - 1);
    const unsigned sign = std::signbit(value) ? 0x8000u : 0;
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | kInfinity);
    if (value == 0) return static_cast<std::uint16_t>(sign);
    int exponent = 0;
    std::frexp(value, &exponent);
    // Of its last bit: that of a number with Fraction + 1 bits, or of a denormal one.
    const int last = std::max(exponent - Fraction - 1, kLeast);
    const double units = std::nearbyint(std::ldexp(std::fabs(value), -last));
    // A carry into the next exponent is right as it is.
    const double magnitude = units + std::ldexp(last - kLeast, Fraction);
    return static_cast<std::uint16_t>(sign | (magnitude > kInfinity ? kInfinity : static_cast<unsigned>(magnitude)));
  }
};

template <class T, class Get>
T reduced(std::span<const void* const> inputs, std::size_t i, paraexpress::Reduction op, Get get) {
  T so_far = get(inputs[0], i);
  for (const void* input : inputs.subspan(1)) {
    const T next = get(input, i);
    if (op == paraexpress::Reduction::kMax) {
      so_far = next > so_far ? next : so_far;
    } else if constexpr (std::is_same_v<T, float>) {
      // A double has more than twice a float's bits, so rounding its sum again is rounding once.
      so_far = static_cast<float>(static_cast<double>(so_far) + static_cast<double>(next));
    } else {
      so_far = static_cast<T>(so_far + next);
    }
  }
  return so_far;
}

template <class T>
T at(const void* array, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(array) + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(std::vector<std::byte>& out, std::size_t i, T value) {
  std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
}

// T, computed as Wide: unsigned for sums, which wrap.
template <class T, class Wide>
void integer(std::vector<std::byte>& out, std::span<const void* const> inputs, std::size_t i,
             paraexpress::Reduction op) {
  const auto get = [](const void* array, std::size_t index) { return static_cast<Wide>(at<T>(array, index)); };
  put(out, i, static_cast<T>(reduced<Wide>(inputs, i, op, get)));
}
template <class T>
void any_integer(std::vector<std::byte>& out, std::span<const void* const> inputs, std::size_t i,
                 paraexpress::Reduction op) {
  if (op == paraexpress::Reduction::kMax && std::is_signed_v<T>) {
    integer<T, std::int64_t>(out, inputs, i, op);
  } else {
    integer<T, std::uint64_t>(out, inputs, i, op);
  }
}
template <class Format>
void small(std::vector<std::byte>& out, std::span<const void* const> inputs, std::size_t i, paraexpress::Reduction op) {
  const auto get = [](const void* array, std::size_t index) {
    return static_cast<float>(Format::value(at<std::uint16_t>(array, index)));
  };
  put(out, i, Format::bits(static_cast<double>(reduced<float>(inputs, i, op, get))));
}

inline std::vector<std::byte> reference(std::span<const void* const> inputs, std::size_t count,
                                        paraexpress::DataType type, paraexpress::Reduction op) {
  using paraexpress::DataType;
  std::vector<std::byte> out(count * paraexpress::element_bytes(type));
  for (std::size_t i = 0; i < count; ++i) {
    switch (type) {
      case DataType::kInt8: any_integer<std::int8_t>(out, inputs, i, op); break;
      case DataType::kUint8: any_integer<std::uint8_t>(out, inputs, i, op); break;
      case DataType::kInt32: any_integer<std::int32_t>(out, inputs, i, op); break;
      case DataType::kUint32: any_integer<std::uint32_t>(out, inputs, i, op); break;
      case DataType::kInt64: any_integer<std::int64_t>(out, inputs, i, op); break;
      case DataType::kUint64: any_integer<std::uint64_t>(out, inputs, i, op); break;
      case DataType::kFloat16: small<Small<10>>(out, inputs, i, op); break;
      case DataType::kBfloat16: small<Small<7>>(out, inputs, i, op); break;
      case DataType::kFloat32: {
        const float value = reduced<float>(inputs, i, op, at<float>);
        put(out, i, std::isnan(value) ? std::uint32_t{0x7fc00000} : at<std::uint32_t>(&value, 0));
        break;
      }
      case DataType::kFloat64: {
        const double value = reduced<double>(inputs, i, op, at<double>);
        put(out, i, std::isnan(value) ? std::uint64_t{0x7ff8000000000000} : at<std::uint64_t>(&value, 0));
        break;
      }
    }
  }
  return out;
}

}  // namespace clustar::tests
