// From times of rounds to what is reported and held against the bars. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/lossy/scenario.h"

namespace clustar::bench::lossy {

struct Times {
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, mean = 0, min = 0, max = 0;  // ms; percentiles by nearest rank
};
Times times_of(std::vector<double> ms);

// (ms, fraction of all that took at most so long), rising; at most `points`, the extremes among them.
std::vector<std::pair<double, double>> distribution(std::vector<double> ms, std::size_t points);

// A job's part of what all jobs of an arm got together.
struct JobShare {
  std::string name;
  double goodput_gbps = 0;
  double share = 0;  // of the fair one: 1 = as much as every other
};

// One arm of a scenario, as measured.
struct ArmSamples {
  std::string name;
  std::vector<std::vector<double>> block_ms;   // round times, by block
  std::vector<std::vector<double>> block_cpu;  // CPU seconds per Gbit, by block and round
  std::vector<std::vector<JobShare>> block_shares;

  std::vector<double> all_ms() const;
};

struct Bar {
  std::string text;
  double limit = 0;
  bool at_least = false;
  // Nothing when an arm that it needs was not measured.
  std::optional<double> figure;
  double low = 0, high = 0;  // the same figure in single blocks: its spread
  bool met() const { return figure && (at_least ? *figure >= limit : *figure <= limit); }
};
Bar judge(const BarSpec& spec, const std::vector<ArmSamples>& arms, double ideal_ms);

// The sizes of `blocks` turns that make up `rounds`; fewer when there are not so many rounds.
std::vector<int> plan_blocks(int rounds, int blocks);

}  // namespace clustar::bench::lossy
