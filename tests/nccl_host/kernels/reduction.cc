#include "tests/nccl_host/kernels/reduction.h"

#include <cstring>
#include <type_traits>

namespace nccl_host {
namespace {

// What the arithmetic is done in: halves in float, rounded after every operation, as GPUs do; integers unsigned, so
// that overflow wraps.
template <class T>
T Add(T a, T b) {
  if constexpr (std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>)
    return T(float(a) + float(b));
  else
    return T(a + b);
}

template <class T>
T Multiply(T a, T b) {
  if constexpr (std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>)
    return T(float(a) * float(b));
  else
    return T(a * b);
}

template <class T>
T MinMax(T a, T b, uint64_t argument) {
  if constexpr (std::is_integral_v<T>) {
    return T(a ^ T(argument)) < T(b ^ T(argument)) ? a : b;
  } else {
    const bool min = (argument & 1) == 0;
    if (a != a || b != b) return a != a ? b : a;
    return (float(a) == float(b) ? a < b : float(a) < float(b)) == min ? a : b;
  }
}

// Elements may lie at any address: a chunk of bytes ends where it ends.
template <class T>
T Load(const void* from, size_t index) {
  T value;
  std::memcpy(static_cast<void*>(&value), static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void Store(void* to, size_t index, T value) {
  std::memcpy(static_cast<char*>(to) + index * sizeof(T), &value, sizeof(T));
}

template <class Function>
void WithType(Datatype type, Function function) {
  switch (type) {
    case Datatype::kInt8:
    case Datatype::kUint8: return function(uint8_t{});
    case Datatype::kInt32:
    case Datatype::kUint32: return function(uint32_t{});
    case Datatype::kInt64:
    case Datatype::kUint64: return function(uint64_t{});
    case Datatype::kFloat16: return function(Float16{});
    case Datatype::kFloat32: return function(float{});
    case Datatype::kFloat64: return function(double{});
    case Datatype::kBfloat16: return function(Bfloat16{});
  }
}

template <class T>
T Divide(T value, uint64_t argument) {
  const bool negative = (argument & 1) != 0 && (value >> (8 * sizeof(T) - 1)) != 0;
  const uint64_t magnitude = negative ? T(-value) : value;
  const T quotient = T(magnitude / (argument >> 1 & 0x7fffffff));
  return negative ? T(-quotient) : quotient;
}

}  // namespace

Reduction::Reduction(Operator op, Datatype type, uint64_t argument) : op_(op), type_(type), argument_(argument) {}

void Reduction::Before(void* target, const void* source, size_t count) const {
  WithType(type_, [&]<class T>(T) {
    const T factor = Load<T>(&argument_, 0);
    for (size_t i = 0; i < count; ++i) Store(target, i, Multiply(Load<T>(source, i), factor));
  });
}

void Reduction::Combine(void* target, const void* a, const void* b, size_t count) const {
  WithType(type_, [&]<class T>(T) {
    const auto each = [&](auto operation) {
      for (size_t i = 0; i < count; ++i) Store<T>(target, i, operation(Load<T>(a, i), Load<T>(b, i)));
    };
    switch (op_) {
      case Operator::kSum:
      case Operator::kPreMulSum:
      case Operator::kSumPostDiv: return each(Add<T>);
      case Operator::kProd: return each(Multiply<T>);
      case Operator::kNone: return each([](T x, T) { return x; });
      case Operator::kMinMax: return each([this](T x, T y) { return MinMax(x, y, argument_); });
    }
  });
}

void Reduction::After(void* target, size_t count) const {
  if (op_ != Operator::kSumPostDiv) return;
  WithType(type_, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) {
      for (size_t i = 0; i < count; ++i) Store(target, i, Divide(Load<T>(target, i), argument_));
    }
  });
}

}  // namespace nccl_host
