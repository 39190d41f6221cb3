// What a jobs file says: jobs that share a fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/ab/arm.h"

namespace clustar::bench::ab::jobs {

// `clustar train`. What is not given is as on the command line.
struct Training {
  std::string model{};
  std::optional<int> epochs{};
  std::optional<int> steps{};  // instead: as many whole epochs as have them
  std::optional<int> batch{};
  std::optional<std::size_t> examples{};
  std::string all_reduce = "ring";
};

// A trace of Muri whose jobs come at their times, and wait for GPUs.
struct Queue {
  std::size_t jobs = 1;  // the first so many
  std::size_t gpus_per_host = 8;
  double scale = 100'000;  // divides submit times and iterations
};
inline constexpr std::size_t kMostQueued = 256;
// CLUSTAR_JOB of a queue's nth job is that of the queue, times this, plus n.
inline constexpr std::uint64_t kJobsOfAQueue = 1000;
static_assert(kMostQueued < kJobsOfAQueue);

// The traffic of one job of a trace, or of a queue, in a closed loop: compute, send, and only when all of that has
// arrived go on.
struct Traffic {
  std::string path{};               // as a process in this folder opens it
  std::string source{};             // "aicb", "muri"
  std::optional<std::string> id{};  // of a job of Muri: its job_id
  std::optional<Queue> queue{};     // of Muri, instead
  int iterations = 10;              // not of a queue
  double gbps = 100;                // the rate that the trace is for: sizes shrink to the fabric's, times stay
  std::optional<double> duty{}, compute_ms{};  // of AICB
};

struct JobSpec {
  std::string name{};
  std::variant<Training, Traffic> work{};
  std::vector<int> hosts{};  // of rank 0, 1, ...; of AICB its ranks are spread over them evenly
  double start_s = 0;        // after the round began
  Settings settings{};       // of its processes, in both arms: CLUSTAR_JOB and what the file sets

  bool trains() const { return std::holds_alternative<Training>(work); }
  bool is_queue() const { return !trains() && std::get<Traffic>(work).queue.has_value(); }
  // What a step is counted in: "images", "iterations".
  const char* unit() const { return trains() ? "images" : "iterations"; }
};

}  // namespace clustar::bench::ab::jobs
