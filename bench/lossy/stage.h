// What runs one arm: a crew for each of its jobs, all in the same rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/lossy/crew.h"
#include "bench/lossy/figures.h"

namespace clustar::bench::lossy {

struct RoundOutcome {
  std::int64_t go_ns = 0;  // when the senders began, by CLOCK_MONOTONIC
  std::vector<CrewRound> jobs;
};

// By CLOCK_MONOTONIC; 0 for a round without arrivals.
std::int64_t last_arrival(const CrewRound& round);

// What each job got of `bytes` per message while all of them were at it: the one that is first leaves the line to the
// others.
std::vector<JobShare> shares_of(const RoundOutcome& round, const std::vector<std::string>& names, std::size_t bytes);

class Stage {
 public:
  // Jobs take the hosts from 1 on, each as many as `terms` has senders. Errors: as Crew::start().
  static Result<Stage> start(const std::string& arm, const Terms& terms, const std::string& executable,
                             const fabric::Fabric& fabric);

  Result<RoundOutcome> round();
  // By job, in order; "job" is its name.
  Result<nlohmann::json> facts();
  // Whether facts() that were taken before any loss show the minimum RTO that each arm asked for.
  Result<void> check(const nlohmann::json& facts) const;

  void sleep();
  void wake();

 private:
  std::vector<std::unique_ptr<Crew>> crews_;
  std::uint32_t number_ = 0;
};

}  // namespace clustar::bench::lossy
