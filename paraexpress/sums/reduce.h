// Element-wise reductions of arrays in host memory, at the memory's speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "paraexpress/sums/instruction_set.h"

namespace clustar::paraexpress {

// NCCL's datatypes under its numbers (ncclDataType_t, NCCL v2.30.7), but for its 8-bit floats.
enum class DataType : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
};
inline constexpr std::size_t kDataTypes = 10;

enum class Reduction : std::uint8_t { kSum, kMax };
inline constexpr std::size_t kReductions = 2;

std::size_t element_bytes(DataType type);
const char* name_of(DataType type);

// out[i] = ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ... for i below `count`: always in this order, in one pass.
// At least one input. `out` may be one of them, or several, but must not overlap one otherwise; so adding to what is
// there is `out` as the first input. No alignment is needed. Any thread; what is written is seen by any thread that
// learns of the return, as any other store is.
//
// Integer sums wrap. Floats follow IEEE 754 in the thread's rounding mode, denormals included if the thread keeps them;
// kFloat16 and kBfloat16 are added in 32 bits and rounded once, to nearest even, when all inputs of the call are in. A
// maximum takes the next input only where it is greater, so it passes over a NaN that is not in the first input. A
// result that is a NaN is the positive quiet one without payload. So in the default rounding mode, to nearest even, and
// with denormals kept, the bits of a result depend on the inputs and their order, and on nothing of the processor.
void reduce_into(void* out, std::span<const void* const> inputs, std::size_t count, DataType type, Reduction op);
void sum_into(void* out, std::span<const void* const> inputs, std::size_t count, DataType type);

// With the instructions of `set`, which must be supported(); the result is the same.
void reduce_into(void* out, std::span<const void* const> inputs, std::size_t count, DataType type, Reduction op,
                 InstructionSet set);

}  // namespace clustar::paraexpress
