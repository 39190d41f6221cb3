// In which type a run computes and sends gradients: float32, or one of 16 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::bench::trainer {

enum class Precision : std::uint8_t { kFloat32, kBfloat16, kFloat16 };

const char* to_string(Precision precision);  // "f32", "bf16", "f16"
constexpr std::size_t element_bytes(Precision precision) { return precision == Precision::kFloat32 ? 4 : 2; }

// Each to the nearest value that the type has, ties to even; from 65520 on, float16 has infinity only. Nothing happens
// for kFloat32.
void round_to(Precision precision, std::span<float> values);

// Between float32 and a 16-bit type, as the machine stores it: as many elements on both sides. Rounds as round_to().
void pack(Precision precision, std::span<const float> values, std::span<std::uint16_t> packed);
void unpack(Precision precision, std::span<const std::uint16_t> packed, std::span<float> values);

// No infinity, no NaN.
bool all_finite(std::span<const float> values);

}  // namespace clustar::bench::trainer
