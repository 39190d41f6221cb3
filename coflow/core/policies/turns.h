// Jobs take turns: whose coflow goes first, so that in the long run none gets less of a contended port than the others,
// though each coflow has the port to itself.
//
// What a job was served counts, in bytes at its coflows' bottlenecks over its weight. Those that are not ahead of the
// least served one by more than the largest coflow present are served in BSSI order, then those up to as much ahead of
// the least served of the rest, and so on: as in deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) no job
// falls behind another by more than about one largest coflow. What a job got less than others is remembered while it
// computes, within limits, unlike in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): a training job that
// had to wait would else lose its claim with each iteration.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "coflow/core/bssi_order.h"
#include "coflow/core/table.h"

namespace clustar::coflow {

struct TurnsOptions {
  // How far behind the others a job may be that comes back, in largest coflows. Less is a shorter memory: nearer to the
  // order by size alone, which serves small jobs better and starves large ones.
  double credit = 2;
};

class JobTurns {
 public:
  JobTurns(const Table& table, const TurnsOptions& options) : table_(table), options_(options) {}

  void arrived(CoflowId coflow);
  void departed(CoflowId coflow);
  // All that have arrived and not departed, first to serve first.
  std::vector<CoflowId> order(BssiOrder& bssi);
  // How long the last order may stay, if nobody comes or goes, in rate_units.
  double good_for() const { return good_for_; }

 private:
  struct Job {
    double served = 0;  // by departed coflows, and what it did not ask for
    std::vector<CoflowId> present{};
  };
  struct Present {
    std::uint64_t job = 0;
    double bottleneck = 0;  // bytes, when it arrived
  };
  std::uint64_t job_of(CoflowId coflow) const;
  double served(CoflowId coflow) const;
  double served(const Job& job) const;
  void look();

  const Table& table_;
  const TurnsOptions options_;
  std::map<std::uint64_t, Job> jobs_;
  std::map<CoflowId, Present> present_;
  double least_ = 0;    // served of those that had something to send; a new job begins here
  double largest_ = 0;  // coflow so far
  double ahead_ = 0;    // that a job may be, when the last order was made
  double good_for_ = 0;
};

}  // namespace clustar::coflow
