// One workload over several arms, in turns, and beside it what the simulator says of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/coflow/compare.h"
#include "bench/coflow/live/conductor.h"

namespace clustar::bench::coflow::live {

struct PlayOptions {
  std::vector<Arm> arms;
  int rounds = 1;
  double trace_gbps = 1;                // what the workload is for, in 1e9 bit/s: sizes shrink, times stay
  std::uint64_t rate_bps = 25'000'000;  // of a host's line, each direction
  int mtu = 1500;                       // of the fabric
  std::uint64_t buffer_bytes = 0;       // of a switch's port; 0: the fabric's default
  bool per_coflow = false;              // with Summary::each
  std::map<std::string, std::string> environment{};
  std::function<bool()> stop{};
};

struct Played {
  Arm arm;
  std::vector<Summary> rounds;
  std::optional<Summary> simulated;
};

struct Performance {
  std::string workload;
  std::size_t hosts = 0;
  std::uint64_t rate_bps = 0;
  int mtu = 0;
  double trace_gbps = 1;
  double line_mbps = 0;  // of payload: what the simulator's ports carry
  Load load;
  bool jobs = false;
  std::size_t gpus_per_host = 0;  // 0: no job waits for any
  double scale = 1;               // what times between jobs and iterations were divided by
  std::size_t left_out = 0;       // flows that stay on a host
  std::vector<Played> arms;
  std::string incomplete;  // not empty: why there are fewer rounds than asked for
};

// The longest that is taken on.
inline constexpr std::size_t kMostHosts = 64;
inline constexpr double kMostSeconds = 3600;  // of a round, as the simulator has it

// Makes a fabric and removes it. Errors: kInvalidArgument for what was asked for; what the machine lacks; a round that
// failed, unless others are complete.
Result<Performance> perform(const Source& source, const PlayOptions& options, const Say& say);

// Against the first arm: over rounds, of its figure over this one's: above 1 is better.
struct Gain {
  double median = 0, least = 0, most = 0;
  double simulated = 0;  // 0: the simulator has no counterpart
};
Gain gain_of(const Performance& performance, std::size_t arm);                       // average completion time
Gain job_gain_of(const Performance& performance, std::size_t arm, std::size_t job);  // iterations while all jobs run
Gain completion_gain_of(const Performance& performance, std::size_t arm);  // of jobs, from submission on, on average

std::string text(const Performance& performance);
nlohmann::json to_json(const Performance& performance);  // results: a row per arm
nlohmann::json workload_json(const Performance& performance);

}  // namespace clustar::bench::coflow::live
