// Traces of training jobs of Muri (github.com/Rivendile/Muri): job_id, num_gpu, submit_time, iterations, model_name,
// iteration_time, resource_time_2 (the network's part of it); times in ms.
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "bench/coflow/jobs.h"
#include "transport/base/result.h"

namespace clustar::bench::coflow {

inline constexpr double kLeastIntensity = 1e-3, kMostIntensity = 1e6;

struct MuriOptions {
  std::size_t ports = 16;
  std::size_t gpus_per_port = 8;
  double scale = 2000;  // traces have weeks: divides submit times and iterations (one is left at least)
  // Weights are GPU intensities (Crux, SIGCOMM 2024), a GPU's work taken as its compute time: GPUs times the compute
  // time over the network's of an iteration, kLeastIntensity at least and kMostIntensity at most, so that who only
  // communicates or hardly at all has a weight, too. Otherwise all weigh the same.
  bool intensity = false;
  std::size_t jobs = std::numeric_limits<std::size_t>::max();  // the first so many
  std::string_view lower = "raise scale, or lower jobs,";      // of the caller's keys those that make it less
};

// "ports=16,gpus_per_port=8", any of them. Errors name what is allowed.
Result<MuriOptions> parse_muri_options(std::string_view text);

// By its header.
bool is_muri(std::string_view text);

// An iteration computes for iteration_time less resource_time_2, and then does a ring all-reduce from port to port that
// takes resource_time_2 alone, or no time on one port. Errors name the line and what is allowed.
Result<JobMix> parse_muri(std::string_view text, const std::string& name, const MuriOptions& options,
                          double bytes_per_s);

}  // namespace clustar::bench::coflow
