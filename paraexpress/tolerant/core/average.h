// The sum of a part of a bucket from the contributions that came, each perhaps with holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paraexpress/core/forest.h"
#include "paraexpress/sums/reduce.h"

namespace clustar::paraexpress::tolerant {

// What one rank gave.
struct Given {
  const std::byte* elements = nullptr;
  std::uint32_t weight = 1;  // gradients that it is the sum of: 1 ..
  // Elements that did not come: ascending, disjoint. They read as zero.
  std::vector<ElementRange> missing{};
};

struct AverageTerms {
  std::uint32_t ranks = 1;
  // Elements of fewer contributions than this are not summed at all: they are 0, and stay with those who gave them.
  std::uint32_t quorum = 1;
  bool scales = true;
};

// Elements that average_into() leaves out: ascending, disjoint.
std::vector<ElementRange> left_out(std::span<const Given> given, std::uint64_t count, const AverageTerms& terms);
// out[i] = ranks / (weights of what came of element i) x its sum, in the order of `given`, so that a plain sum, bit for
// bit, remains where all ranks gave one gradient. Floats of 32 and 64 bits.
void average_into(std::byte* out, std::span<const Given> given, std::uint64_t count, DataType type,
                  const AverageTerms& terms);

// Ascending and disjoint, of what lies below `count` elements; each touches at least a byte of one of `bytes`.
std::vector<ElementRange> elements_of(std::span<const ElementRange> bytes, std::size_t element, std::uint64_t count);

}  // namespace clustar::paraexpress::tolerant
