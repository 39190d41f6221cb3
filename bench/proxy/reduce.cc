#include "bench/proxy/reduce.h"

#include <cstdint>

#include "transport/base/half.h"

namespace clustar::bench::proxy {
namespace {

// Each element is read before it is written and only from the same index, so the loop carries no dependency.
#if defined(__clang__)
#define CLUSTAR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define CLUSTAR_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Unsigned stands in for int32, whose overflow would be undefined.
template <class T>
void sum(T* out, const T* received, const T* own, std::size_t count) {
  CLUSTAR_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(received[i] + own[i]);
}

template <class T>
void max(T* out, const T* received, const T* own, std::size_t count) {
  CLUSTAR_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = received[i] > own[i] ? received[i] : own[i];
}

struct Float16 {
  static float widen(std::uint16_t value) { return from_float16(value); }
  static std::uint16_t narrow(float value) { return to_float16(value); }
};
struct Bfloat16 {
  static float widen(std::uint16_t value) { return from_bfloat16(value); }
  static std::uint16_t narrow(float value) { return to_bfloat16(value); }
};

template <class Half>
void combine_halves(void* out, const void* received, const void* own, std::size_t count, ReduceOp op) {
  auto* const to = static_cast<std::uint16_t*>(out);
  const auto* const a = static_cast<const std::uint16_t*>(received);
  const auto* const b = static_cast<const std::uint16_t*>(own);
  if (op == ReduceOp::kSum) {
    CLUSTAR_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = Half::narrow(Half::widen(a[i]) + Half::widen(b[i]));
  } else {
    CLUSTAR_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = Half::widen(a[i]) > Half::widen(b[i]) ? a[i] : b[i];
  }
}

template <class Sum, class Max>
void dispatch(void* out, const void* received, const void* own, std::size_t count, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    sum(static_cast<Sum*>(out), static_cast<const Sum*>(received), static_cast<const Sum*>(own), count);
  } else {
    max(static_cast<Max*>(out), static_cast<const Max*>(received), static_cast<const Max*>(own), count);
  }
}

}  // namespace

void combine(void* out, const void* received, const void* own, std::size_t count, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32: return dispatch<float, float>(out, received, own, count, op);
    case DataType::kFloat64: return dispatch<double, double>(out, received, own, count, op);
    case DataType::kInt32: return dispatch<std::uint32_t, std::int32_t>(out, received, own, count, op);
    case DataType::kUint8: return dispatch<std::uint8_t, std::uint8_t>(out, received, own, count, op);
    case DataType::kFloat16: return combine_halves<Float16>(out, received, own, count, op);
    case DataType::kBfloat16: return combine_halves<Bfloat16>(out, received, own, count, op);
  }
}

}  // namespace clustar::bench::proxy
