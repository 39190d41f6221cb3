#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace nccl_host {

// Numbers as in nccl.h.
enum class Datatype { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16 };

constexpr size_t SizeOf(Datatype type) {
  switch (type) {
    case Datatype::kInt8:
    case Datatype::kUint8: return 1;
    case Datatype::kFloat16:
    case Datatype::kBfloat16: return 2;
    case Datatype::kInt32:
    case Datatype::kUint32:
    case Datatype::kFloat32: return 4;
    case Datatype::kInt64:
    case Datatype::kUint64:
    case Datatype::kFloat64: return 8;
  }
  return 0;
}

// The upper half of a float; rounds to nearest, ties to even.
struct Bfloat16 {
  uint16_t bits = 0;
  Bfloat16() = default;
  Bfloat16(float value) : bits(Round(std::bit_cast<uint32_t>(value))) {}
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

 private:
  static uint16_t Round(uint32_t value) {
    const bool nan = (value & 0x7fffffffu) > 0x7f800000u;
    if (nan) return static_cast<uint16_t>(value >> 16 | 0x40);
    return static_cast<uint16_t>((value + 0x7fff + (value >> 16 & 1)) >> 16);
  }
};

using Float16 = _Float16;

}  // namespace nccl_host
