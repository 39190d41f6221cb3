// Jobs take turns: whose coflow goes first, so that in the long run none gets less of a contended port than the others,
// though each coflow has the port to itself.
//
// What a job was served counts, in bytes at its coflows' bottlenecks over its weight, against the jobs that it meets:
// those whose coflows share ports, or share them with one that does. Those that are not ahead of the least served one
// by more than the largest coflow present are served in BSSI order, then those up to as much ahead of the least served
// of the rest, and so on, as in deficit round robin (Shreedhar and Varghese, SIGCOMM 1995). What a job got less than
// others is remembered while it computes, within limits, unlike in start-time fair queueing (Goyal, Vin and Cheng,
// SIGCOMM 1996): a training job that had to wait would else lose its claim with each iteration.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "coflow/core/bssi_order.h"
#include "coflow/core/table.h"

namespace clustar::coflow {

struct TurnsOptions {
  // How far apart jobs that meet may be, in largest coflows of theirs; beyond that neither has a claim, nor a debt.
  // Less is nearer to the order by size alone, which serves small jobs better and starves large ones.
  double credit = 2;
};

class JobTurns {
 public:
  JobTurns(const Table& table, const TurnsOptions& options) : table_(table), options_(options) {}

  void arrived(CoflowId coflow);
  void flow_added(FlowId flow);
  void departed(CoflowId coflow);
  // All that have arrived and not departed, first to serve first.
  std::vector<CoflowId> order(BssiOrder& bssi);
  // How long the last order may stay, if nobody comes or goes, in rate_units.
  double good_for() const { return good_for_; }

 private:
  // Jobs without coflows whose service is remembered; the one that has been away for longest goes first. A day of a
  // large cluster has fewer.
  static constexpr std::size_t kRemembered = 1024;

  enum class Since : std::uint8_t { kNew, kBack, kBefore };  // with the last order
  struct Job {
    double served = 0;   // by departed coflows; moved where it met others
    double largest = 0;  // coflow so far
    double now = 0;      // order()'s: served in all
    Since since = Since::kNew;
    std::uint64_t left = 0;  // departures when its last coflow went
    std::vector<CoflowId> present{};
  };
  using Jobs = std::vector<Job*>;

  std::uint64_t job_of(CoflowId coflow) const;
  double served(CoflowId coflow) const;
  std::vector<Jobs> who_meets();
  void forget_oldest();
  void settle(const Jobs& jobs) const;
  void order(Jobs& jobs, BssiOrder& bssi, std::vector<CoflowId>& all);
  double crosses(const Job& job, double limit) const;

  const Table& table_;
  const TurnsOptions options_;
  std::map<std::uint64_t, Job> jobs_;
  std::map<CoflowId, double> present_;  // bytes at its bottleneck, in all
  std::uint64_t departures_ = 0;
  double good_for_ = 0;
};

}  // namespace clustar::coflow
