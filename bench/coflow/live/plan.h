// Which lanes a workload needs, and which its flows go over. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "bench/coflow/jobs.h"
#include "bench/coflow/live/lanes.h"
#include "bench/coflow/workload.h"

namespace clustar::bench::coflow::live {

struct Place {  // where an agent is
  std::uint32_t host = 0;
  std::uint32_t job = 0;  // its place in the mix from 1; 0: of a trace
  auto operator<=>(const Place&) const = default;
};

// Of a trace each flow has a lane of its own, as if it opened a connection; of a job each pair of hosts has one, as in
// a communicator.
class Plan {
 public:
  static Plan of(const Trace& trace);
  static Plan of(const JobMix& mix);  // whose flows name the ports

  struct Lane {
    Place from, to;
  };
  const std::vector<Lane>& lanes() const { return lanes_; }

  // Those of the coflow's flows, which are taken in the workload's order. A job's label says which it is.
  std::vector<LaneId> take(const clustar::coflow::CoflowSpec& coflow);
  void again() { taken_.clear(); }

 private:
  struct Pair {
    std::uint32_t job, from, to;
    auto operator<=>(const Pair&) const = default;
  };
  void add(const Pair& pair);

  bool jobs_ = false;
  std::vector<Lane> lanes_;
  std::map<Pair, std::vector<LaneId>> of_;
  std::map<Pair, std::size_t> taken_;  // of a trace: lanes of the pair
};

// Flows that stay on a host need no network: they are left out, and coflows that have no others. How many flows.
std::size_t leave_out_local(Trace& trace);
std::size_t leave_out_local(JobMix& mix);

void scale(Trace& trace, double by);  // all sizes
void scale(JobMix& mix, double by);

// Of the port that has most to send or to receive: bytes.
double bottleneck(const clustar::coflow::CoflowSpec& coflow);

}  // namespace clustar::bench::coflow::live
