// Device code: numbers of 16 bits, and 16 bytes at a time. nvcc brings the language; elsewhere a header with the same
// words is included before (tests/gdr/emulated_device).
#pragma once

namespace clustar::gdr {

// As they lie in memory.
struct Half {
  unsigned short bits;
};
struct Bfloat {
  unsigned short bits;
};

__device__ inline float as_float(float value) { return value; }

__device__ inline float as_float(Bfloat value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

__device__ inline float as_float(Half value) {
  const unsigned sign = (value.bits & 0x8000u) << 16;
  const unsigned exponent = value.bits >> 10 & 0x1fu;
  const unsigned mantissa = value.bits & 0x3ffu;
  if (exponent == 0) {
    // Zero, or below the smallest normal number: by a product, so that no float32 is subnormal on the way.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return __uint_as_float(__float_as_uint(magnitude) | sign);
  }
  const unsigned wide = exponent == 0x1fu ? 0xffu : exponent + (127 - 15);
  return __uint_as_float(sign | wide << 23 | mantissa << 13);
}

// Not a number stays one.
__device__ inline void store(Bfloat& target, float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    target.bits = static_cast<unsigned short>(bits >> 16 | 0x40u);
    return;
  }
  target.bits = static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ inline void store(Half& target, float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned sign = bits >> 16 & 0x8000u;
  const unsigned magnitude = bits & 0x7fffffffu;
  unsigned result = 0;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    result = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the sum with 0.5 rounds to steps of 2^-24
    result = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    result = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  }
  target.bits = static_cast<unsigned short>(sign | result);
}

// 16 bytes of one type: one load, one store.
template <class T>
struct alignas(16) Vector {
  static constexpr unsigned kElements = 16 / sizeof(T);
  T elements[kElements];
};

// Elements before the first 16-byte boundary, at most `count`.
template <class T>
__device__ inline unsigned long long before_boundary(const T* values, unsigned long long count) {
  const auto past = static_cast<unsigned>(reinterpret_cast<unsigned long long>(values) % 16);
  const unsigned long long head = past == 0 ? 0 : (16 - past) / sizeof(T);
  return head < count ? head : count;
}

}  // namespace clustar::gdr
