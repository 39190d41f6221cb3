// What a jobs file says: jobs that share a fabric.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/ab/arm.h"

namespace clustar::bench::ab::jobs {

// As of clustar train.
inline constexpr int kMostBatch = 1 << 20, kMostEpochs = 100'000;

// `clustar train`. What is not given is as on the command line.
struct Training {
  std::string model{};
  std::optional<int> epochs{};
  std::optional<int> steps{};  // instead: as many whole epochs as have them
  std::optional<int> batch{};
  std::optional<std::size_t> examples{};
  std::string all_reduce = "ring";
};

// The traffic of one job of a trace, in a closed loop: compute, send, and only when all of that has arrived go on.
struct Traffic {
  std::string path{};               // as a process in this folder opens it
  std::string source{};             // "aicb", "muri"
  std::optional<std::string> id{};  // of a job of Muri: its job_id
  int iterations = 10;
  double gbps = 100;  // the rate that the trace is for: sizes shrink to the fabric's, times stay
  std::optional<double> duty{}, compute_ms{};  // of AICB
};

struct JobSpec {
  std::string name{};
  std::variant<Training, Traffic> work{};
  std::vector<int> hosts{};  // of rank 0, 1, ...; of AICB its ranks are spread over them evenly
  double start_s = 0;        // after the round began
  Settings settings{};       // of its processes, in both arms: CLUSTAR_JOB and what the file sets

  bool trains() const { return std::holds_alternative<Training>(work); }
  // What a step is counted in: "images", "iterations".
  const char* unit() const { return trains() ? "images" : "iterations"; }
};

}  // namespace clustar::bench::ab::jobs
