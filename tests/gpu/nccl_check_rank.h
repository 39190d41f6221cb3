// One rank of nccl-check: its communicators, its buffers on the GPU, and what it runs on them.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/gpu/nccl_check_collectives.h"

namespace clustar::nccl_check {

struct Options {
  int rank = -1;
  int size = 0;
  std::string id_file;
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64u << 20;
  int deadline_s = 120;
  int iterations = 0;  // timed ones of each collective; 0 = 10 up to 64 KiB, then 4
  bool split = false;  // collectives on communicators split from the first
  int graph = 0;       // replays of captured collectives; 0 = none are captured
  int train = 0;       // training steps over a plugin that may lose; 0 = none
  std::string json;
};

// Every call may throw std::runtime_error.
class Rank {
 public:
  // Joins the communicator; `options` outlives the rank.
  explicit Rank(const Options& options);
  // No destructor: a communicator that failed is not torn down, the process ends.

  // Runs what the options say; an array of one object per collective, type and size, alike on all ranks.
  nlohmann::json run();
  void close();

 private:
  struct Communicator {
    std::string name;
    ncclComm_t comm = nullptr;
    int rank = 0;
    int size = 0;
  };

  Communicator split(const Communicator& parent, const std::string& name, int color, int share);
  nlohmann::json run_split();
  nlohmann::json run_graphs();
  nlohmann::json run_training();
  nlohmann::json sweep(const Communicator& on, const std::vector<std::size_t>& sizes);
  nlohmann::json measure(const Communicator& on, const Collective& collective, ncclDataType_t type);
  void sum_gradients(std::span<const float> gradient, std::span<float> sums);
  nlohmann::json replay(std::size_t bytes, ncclDataType_t type);
  cudaGraphExec_t capture(const std::vector<Collective>& collectives, ncclDataType_t type);
  std::vector<std::size_t> sizes() const;

  const Options& options_;
  cudaStream_t stream_ = nullptr;
  Communicator world_;
  void* send_ = nullptr;
  std::vector<void*> recv_;  // one for each collective that is captured together; the first serves all else
};

}  // namespace clustar::nccl_check
