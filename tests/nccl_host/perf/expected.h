#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/nccl_host/perf/options.h"

namespace nccl_host {

struct Problem {
  const Options& options;
  size_t count = 0;  // elements per rank
};

// Small whole numbers in the datatype.
std::vector<char> Values(Datatype type, size_t count, const std::function<int(size_t)>& value);

// What a rank gives, and what it must have in the end (empty: nothing). Computed apart from the kernels, in numbers
// that every datatype holds exactly, so that the order of additions does not matter.
std::vector<char> Input(const Problem& problem, int rank);
std::vector<char> Output(const Problem& problem, int rank);

// How many elements differ in any bit.
uint64_t Different(const Problem& problem, const std::vector<char>& expected, const void* actual);

}  // namespace nccl_host
