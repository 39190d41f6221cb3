// MLT against the bare loop in one run, in turns.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/dpdk/sample.h"
#include "bench/perf/other_cpu.h"
#include "bench/perf/statistics.h"
#include "transport/base/result.h"

namespace clustar::bench::dpdk {

struct Options {
  std::string wire = "memif";
  int rounds = 11;
  double seconds = 0.5;  // of each loop in a round
};

struct Comparison {
  Options options;
  std::vector<Sample> bare;  // by round
  std::vector<Sample> mlt;
  perf::RatioEstimate goodput;  // of MLT to the bare loop
  perf::RatioEstimate packets;
  double other_cpu = 0;  // cores that others used meanwhile, of those that this process may use
};

// Begins DPDK, which stays. Errors: the wires cannot be made, DPDK cannot begin, a loop fails.
Result<Comparison> compare(const Options& options);

nlohmann::json to_json(const Comparison& comparison);
std::string to_table(const Comparison& comparison);

}  // namespace clustar::bench::dpdk
