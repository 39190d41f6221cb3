// The kernels in plain C++, and what their results are: the vector files give the same bits.
#include <cstring>
#include <type_traits>

#include "paraexpress/sums/kernels.h"
#include "paraexpress/sums/operators.h"

namespace clustar::paraexpress {
namespace {

template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

template <class T, auto kNan>
struct Float {
  using Element = T;
  using Value = T;
  static Value widen(Element element) { return element; }
  static Element narrow(Value value) { return __builtin_isnan(value) ? bits<T>(kNan) : value; }
  static Value add(Value so_far, Value next) { return so_far + next; }
  static Value max(Value so_far, Value next) { return next > so_far ? next : so_far; }
};

template <class T>
struct Integer {
  using Element = T;
  using Value = T;
  using Unsigned = std::make_unsigned_t<T>;
  static Value widen(Element element) { return element; }
  static Element narrow(Value value) { return value; }
  static Value add(Value so_far, Value next) {
    return static_cast<T>(static_cast<Unsigned>(so_far) + static_cast<Unsigned>(next));
  }
  static Value max(Value so_far, Value next) { return next > so_far ? next : so_far; }
};

constexpr std::uint32_t kSign32 = 0x80000000, kInfinity32 = 0x7f800000;

struct Bfloat16 {
  using Element = std::uint16_t;
  using Value = float;
  static Value widen(Element element) { return bits<float>(std::uint32_t{element} << 16); }
  static Element narrow(Value value) {
    const auto word = bits<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return static_cast<Element>((word & ~kSign32) > kInfinity32 ? kNanBfloat16 : rounded);
  }
  static Value add(Value so_far, Value next) { return so_far + next; }
  static Value max(Value so_far, Value next) { return next > so_far ? next : so_far; }
};

// Both ways without a branch. All floating-point operands are normal numbers, so what a thread does with denormals
// changes nothing.
struct Float16 {
  using Element = std::uint16_t;
  using Value = float;
  static constexpr std::uint32_t kInfinity16 = 0x7c00u << 13;  // where a float has its fraction
  static constexpr std::uint32_t kBias = (127 - 15) << 23;     // between the exponents of both
  static constexpr std::uint32_t kLeastNormal = kBias + (1u << 23);

  static Value widen(Element element) {
    const std::uint32_t word = (element & 0x7fffu) << 13;
    // A denormal's fraction counts from the least normal number: so that is added to it, and taken away again.
    const auto denormal = bits<std::uint32_t>(bits<float>(word + kLeastNormal) - bits<float>(kLeastNormal));
    const std::uint32_t normal = word + kBias + (word >= kInfinity16 ? kBias : 0);
    const std::uint32_t magnitude = word < (1u << 23) ? denormal : normal;
    return bits<float>(magnitude | (element & 0x8000u) << 16);
  }
  static Element narrow(Value value) {
    constexpr std::uint32_t kAboveAll = (127u + 16) << 23;
    constexpr std::uint32_t kUnit = (127u - 24 + 23) << 23;  // one of its last fraction bit is the least float16
    const auto word = bits<std::uint32_t>(value);
    const std::uint32_t magnitude = word & ~kSign32;
    const std::uint32_t normal = (magnitude - kBias + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const std::uint32_t small = magnitude < kLeastNormal ? magnitude : 0;
    const std::uint32_t denormal = bits<std::uint32_t>(bits<float>(small) + bits<float>(kUnit)) - kUnit;
    const std::uint32_t finite = magnitude < kLeastNormal ? denormal : normal;
    const std::uint32_t rounded = (magnitude >= kAboveAll ? 0x7c00u : finite) | (word & kSign32) >> 16;
    return static_cast<Element>(magnitude > kInfinity32 ? kNanFloat16 : rounded);
  }
  static Value add(Value so_far, Value next) { return so_far + next; }
  static Value max(Value so_far, Value next) { return next > so_far ? next : so_far; }
};

template <class T>
typename T::Element load(const std::byte* from, std::size_t index) {
  typename T::Element element;
  std::memcpy(&element, from + index * sizeof(element), sizeof(element));
  return element;
}

// All inputs of these elements before anything is written, so `out` may be an input. The values are local, so the
// compiler sees that no store changes what it will load.
constexpr std::size_t kBlock = 64;
template <class T, class Op>
[[gnu::always_inline]] inline void block(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t at,
                                         std::size_t elements) {
  typename T::Value values[kBlock];
  for (std::size_t i = 0; i < elements; ++i) values[i] = T::widen(load<T>(inputs[0], at + i));
  for (std::size_t input = 1; input < n; ++input) {
    const std::byte* const from = inputs[input];
    for (std::size_t i = 0; i < elements; ++i) {
      values[i] = Op::template apply<T>(values[i], T::widen(load<T>(from, at + i)));
    }
  }
  typename T::Element results[kBlock];
  for (std::size_t i = 0; i < elements; ++i) results[i] = T::narrow(values[i]);
  std::memcpy(out + at * sizeof(results[0]), results, elements * sizeof(results[0]));
}

template <class T, class Op>
std::size_t kernel(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t begin, std::size_t end) {
  std::size_t at = begin;
  for (; at + kBlock <= end; at += kBlock) block<T, Op>(out, inputs, n, at, kBlock);
  if (at < end) block<T, Op>(out, inputs, n, at, end - at);
  return end;
}

template <class Op>
constexpr KernelRow row() {
  return {kernel<Integer<std::int8_t>, Op>,
          kernel<Integer<std::uint8_t>, Op>,
          kernel<Integer<std::int32_t>, Op>,
          kernel<Integer<std::uint32_t>, Op>,
          kernel<Integer<std::int64_t>, Op>,
          kernel<Integer<std::uint64_t>, Op>,
          kernel<Float16, Op>,
          kernel<Float<float, kNanFloat32>, Op>,
          kernel<Float<double, kNanFloat64>, Op>,
          kernel<Bfloat16, Op>};
}

}  // namespace

constinit const Kernels kPortableKernels = {row<Add>(), row<Max>(), row<Add>(), row<Max>()};

}  // namespace clustar::paraexpress
