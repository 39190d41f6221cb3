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
  std::vector<std::vector<double>> block_cpu;  // CPU seconds per Gbit of the arm's processes, by block and round
  std::vector<std::vector<double>> block_machine_cpu;  // the same of the whole machine; one per block, or none
  std::vector<std::vector<std::vector<JobShare>>> block_shares;  // by block, round and job
  std::vector<double> stalled_ms;   // rounds that do not count, since this machine stood still in them; not in block_ms
  std::uint64_t softnet_drops = 0;  // see MachineCounts
  std::uint64_t super_packets = 0;  // that the switch had to count as one packet

  std::vector<double> all_ms() const;  // that count
};

// Below this many rounds percentiles are indicative.
inline constexpr std::size_t kRoundsForPercentiles = 1000;

// What a scenario's bars are judged with besides the samples.
struct Conditions {
  double ideal_ms = 0;
  double bucket_ms = 0;  // by which a round may be faster than the ideal: see fabric::burst_bytes()
  // Nobody else used the CPU, so that what the kernel did for the traffic in nobody's name is told by the machine's
  // CPU.
  bool machine_is_ours = false;
  std::uint64_t backstop_drops = 0;
};

struct Bar {
  std::string text;
  double limit = 0;
  bool at_least = false;
  // Nothing when an arm that it needs was not measured.
  std::optional<double> figure;
  double low = 0, high = 0;                  // the same figure in single blocks: its spread
  std::optional<double> figure_less_bucket;  // with kP99OverIdeal: against the ideal less Conditions::bucket_ms
  std::optional<double> figure_with_stalls;  // with stalled rounds too; nothing where there are none
  bool indicative = false;                   // a percentile of fewer than kRoundsForPercentiles rounds
  std::string void_because;                  // what was measured is not what was asked for: neither met nor missed
  bool met() const { return figure && void_because.empty() && (at_least ? *figure >= limit : *figure <= limit); }
};
Bar judge(const BarSpec& spec, const std::vector<ArmSamples>& arms, const Conditions& conditions);

// The sizes of `blocks` turns that make up `rounds`; fewer when there are not so many rounds.
std::vector<int> plan_blocks(int rounds, int blocks);

// Who is at its turn when, in block number `block`: a seeded order, one place further with every block, and another
// order after as many blocks as there are arms. So each arm is at each place once in that many blocks.
std::vector<std::size_t> turn_order(std::size_t arms, std::size_t block, std::uint64_t seed);

}  // namespace clustar::bench::lossy
