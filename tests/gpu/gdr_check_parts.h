// What gdr-check does on one GPU; each part answers with its piece of the JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "gdr/cuda/module_api.h"
#include "tests/gpu/gdr_check_driver.h"

namespace clustar::gdr_check {

struct Options {
  int device = 0;
  std::size_t most_bytes = 64u << 20;  // of a staged message
  int rounds = 9;
  std::string modules;  // folder of libclustar-cuda.so
  std::string json;
  bool behind_only = false;  // only copy_behind_a_kernel
};

// Per kind of memory: what the driver says of it, whether it is exported as a dma-buf, SYNC_MEMOPS.
nlohmann::json look_at_memory(const Driver& driver, const gdr::cuda::Api& api, const Options& options);
// cuFlushGPUDirectRDMAWrites: its answer, and how long it takes with no writes on their way.
nlohmann::json time_flush(const gdr::cuda::Api& api, const Options& options);
// GPU to host and back by DeviceCopy in slices, by one copy, and by a kernel that writes to mapped host memory, as
// NCCL's do; round by round in turns. Every byte is compared.
nlohmann::json stage(const Driver& driver, const gdr::cuda::Api& api, const Options& options);
// Whether copies end while a kernel runs that waits for the host, as NCCL's do.
nlohmann::json copy_behind_a_kernel(const Driver& driver, const gdr::cuda::Api& api, const Options& options);

// Whether a copy ends while a kernel waits for the host and another thread is inside a call that waits for that kernel;
// and while a graph is captured in global mode, which it must not break.
nlohmann::json copy_beside_others(const Driver& driver, const gdr::cuda::Api& api, const Options& options);

// Two kernels: clustar_copy(to, from, number of 16 B), clustar_wait(flag, most looks at it).
extern const char* const kKernels;

// Median and quartiles of at least one sample.
struct Spread {
  double q1, median, q3;
};
Spread spread_of(std::vector<double> samples);

}  // namespace clustar::gdr_check
