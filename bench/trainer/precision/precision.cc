#include "bench/trainer/precision/precision.h"

#include <bit>

#include "transport/base/half.h"

namespace clustar::bench::trainer {

const char* to_string(Precision precision) {
  switch (precision) {
    case Precision::kFloat32: return "f32";
    case Precision::kBfloat16: return "bf16";
    case Precision::kFloat16: return "f16";
  }
  return "?";
}

void round_to(Precision precision, std::span<float> values) {
  if (precision == Precision::kBfloat16) {
    for (float& value : values) value = from_bfloat16(to_bfloat16(value));
  } else if (precision == Precision::kFloat16) {
    for (float& value : values) value = from_float16(to_float16(value));
  }
}

void pack(Precision precision, std::span<const float> values, std::span<std::uint16_t> packed) {
  const float* __restrict from = values.data();
  std::uint16_t* __restrict to = packed.data();
  if (precision == Precision::kBfloat16) {
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = to_bfloat16(from[i]);
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = to_float16(from[i]);
  }
}

void unpack(Precision precision, std::span<const std::uint16_t> packed, std::span<float> values) {
  const std::uint16_t* __restrict from = packed.data();
  float* __restrict to = values.data();
  if (precision == Precision::kBfloat16) {
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = from_bfloat16(from[i]);
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = from_float16(from[i]);
  }
}

// Without leaving early, so that the loop becomes vectors.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t beyond = 0;
  for (const float value : values) beyond |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  return beyond == 0;
}

}  // namespace clustar::bench::trainer
