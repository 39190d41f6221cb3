// Element-wise arithmetic of the reductions, in tight loops that the compiler vectorises.
#pragma once

#include <cstddef>

#include "bench/proxy/communicator.h"

namespace clustar::bench::proxy {

// out[i] = received[i] op own[i]. `out` may be one of the inputs, but must not overlap one otherwise. Integer sums
// wrap. A NaN in a maximum keeps whichever operand the comparison rejects, which is `own`.
void combine(void* out, const void* received, const void* own, std::size_t count, DataType type, ReduceOp op);

}  // namespace clustar::bench::proxy
