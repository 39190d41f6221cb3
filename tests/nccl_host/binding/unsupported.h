#pragma once

#include <cstdio>
#include <cstdlib>

namespace nccl_host {

// NCCL took a way that is not emulated: going on would give wrong bits or hang.
[[noreturn]] inline void NotEmulated(const char* what, const char* advice) {
  std::fprintf(stderr, "nccl-host: not emulated: %s; %s\n", what, advice);
  std::abort();
}

}  // namespace nccl_host
