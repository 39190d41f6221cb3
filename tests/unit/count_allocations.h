// operator new of the whole executable counts, while a Counting lives. For an executable of its own, built with
// CLUSTAR_COUNT_ALLOCATIONS: 1, or 0 where a sanitizer has operators of its own. One thread only.
#pragma once

#include <cstdint>

namespace clustar::tests {

inline constexpr const char* kWhyNotCounted =
    "a sanitizer has operators of its own, which must not be mixed with others";

class Counting {  // from 0
 public:
  Counting();
  ~Counting();
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
};

// By the latest Counting, also after its end.
std::uint64_t counted_allocations();
// Where they came from: the first few places, each with its callers, to standard error.
void print_allocations();

}  // namespace clustar::tests
