// What the profilers of chained_profiler_module.cc saw, for the tests that open them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clustar::tests {

struct ChainedCall {
  std::string call{};  // init, start, stop, record, finalize
  void* context = nullptr;
  void* handle = nullptr;
  std::uint64_t type = 0;
  void* parent = nullptr;
  void* group = nullptr;
  std::uint64_t number = 0;  // what tells the event from others of its type: sequence number, step, state
  std::string func{};
};

// `chained_profiler_mask`: an int*, what it will ask for; `chained_profiler_take`: the calls since the last time.
using ChainedTake = std::vector<ChainedCall> (*)();

}  // namespace clustar::tests
