#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/nccl_host/kernels/datatype.h"

namespace nccl_host {

// As NCCL's device code knows them: min and max are one, average is a sum and a division for integers, and a
// multiplication and a sum for floats. Numbers as in device.h.
// kNone keeps the first and drops the second, for tests that must see a check fail.
enum class Operator { kSum, kProd, kMinMax, kPreMulSum, kSumPostDiv, kNone };

// One operator on one datatype. argument: of min/max 0 or 1 in bit 0 for floats, and what to XOR before comparing
// unsigned for integers; of pre-multiplied sum the factor's bits; of the average, divisor << 1 | signed.
class Reduction {
 public:
  Reduction(Operator op, Datatype type, uint64_t argument);

  size_t size() const { return SizeOf(type_); }
  bool has_before() const { return op_ == Operator::kPreMulSum; }
  // Of this rank's elements before they meet others'; target may be source.
  void Before(void* target, const void* source, size_t count) const;
  // target may be a or b.
  void Combine(void* target, const void* a, const void* b, size_t count) const;
  // Of the whole result, once.
  void After(void* target, size_t count) const;

 private:
  Operator op_;
  Datatype type_;
  uint64_t argument_;
};

}  // namespace nccl_host
