// A comparison of policies as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/coflow/summary.h"
#include "bench/coflow/workload.h"

namespace clustar::bench::coflow {

struct Comparison {
  std::string workload;
  std::size_t ports = 0;
  double port_gbps = 0;
  Load load;
  std::string rules;
  std::vector<Summary> policies;
  bool jobs = false;              // the workload is a mix of jobs
  std::size_t gpus_per_port = 0;  // of jobs that wait for GPUs
};

// By what a queue's times and sizes are divided, in plain digits.
std::string scales_text(double times, double sizes);
std::string text(const Comparison& comparison);
std::string jobs_text(const Comparison& comparison);                    // text() of jobs
nlohmann::json coflows_json(const std::vector<CoflowResult>& coflows);  // [{label, arrival_s, cct_s, slowdown, ...}]
nlohmann::json jobs_json(const Summary& summary);                       // [{name, iterations, mean_iteration_s, ...}]
// [{policy, rules, average_cct_s, ..., cdf_cct_s[[s, share]...], per_coflow[{label, cct_s, ...}...] if asked for}]
nlohmann::json to_json(const Comparison& comparison);
// {name, ports, port_gbps, load{busiest, mean}, gpus_per_port of jobs}
nlohmann::json workload_json(const Comparison& comparison);

}  // namespace clustar::bench::coflow
