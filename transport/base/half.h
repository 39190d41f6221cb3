// 16-bit floats as NCCL and GPUs have them, by float32: IEEE 754's binary16, and bfloat16, which is a float32's upper
// half.
#pragma once

#include <bit>
#include <cstdint>

namespace clustar {

namespace half {
inline constexpr std::uint32_t kSign = 0x80000000, kInfinity = 0x7f800000;
inline constexpr std::uint32_t kBias = (127 - 15) << 23;  // between the exponents of float32 and float16
inline constexpr std::uint32_t kLeastNormal = kBias + (1u << 23);
inline constexpr std::uint32_t kFloat16Infinity = 0x7c00u << 13;  // where a float32 has its fraction
}  // namespace half

inline float from_bfloat16(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

// To nearest, ties to even; a NaN becomes the positive quiet one. Without a branch, as those below, so that loops over
// arrays become vectors. Operands of floating-point arithmetic are normal numbers only: what a thread does with
// denormals changes nothing.
inline std::uint16_t to_bfloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
  return static_cast<std::uint16_t>((word & ~half::kSign) > half::kInfinity ? 0x7fc0u : rounded);
}

inline float from_float16(std::uint16_t value) {
  const std::uint32_t word = (value & 0x7fffu) << 13;
  // A denormal's fraction counts from the least normal number: that is added to it, and taken away again.
  const auto denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(word + half::kLeastNormal) -
                                                     std::bit_cast<float>(half::kLeastNormal));
  const std::uint32_t normal = word + half::kBias + (word >= half::kFloat16Infinity ? half::kBias : 0);
  const std::uint32_t magnitude = word < (1u << 23) ? denormal : normal;
  return std::bit_cast<float>(magnitude | (value & 0x8000u) << 16);
}

// To the nearest, ties to even; from 65520 on infinite. paraexpress/sums, which includes nothing, has the same code.
inline std::uint16_t to_float16(float value) {
  constexpr std::uint32_t kAboveAll = (127u + 16) << 23;
  constexpr std::uint32_t kUnit = (127u - 24 + 23) << 23;  // one of its last fraction bit is the least float16
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & ~half::kSign;
  const std::uint32_t normal = (magnitude - half::kBias + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // A float32 below half of the least float16 is nothing, denormal or not.
  const std::uint32_t small = magnitude < half::kLeastNormal ? magnitude : 0;
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) + std::bit_cast<float>(kUnit)) - kUnit;
  const std::uint32_t finite = magnitude < half::kLeastNormal ? denormal : normal;
  const std::uint32_t rounded = (magnitude >= kAboveAll ? 0x7c00u : finite) | (word & half::kSign) >> 16;
  return static_cast<std::uint16_t>(magnitude > half::kInfinity ? 0x7e00u : rounded);
}

}  // namespace clustar
