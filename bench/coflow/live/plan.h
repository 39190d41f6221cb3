// Which lanes a workload needs, and which its flows go over. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/coflow/jobs.h"
#include "bench/coflow/live/lanes.h"
#include "bench/coflow/workload.h"
#include "transport/base/result.h"

namespace clustar::bench::coflow::live {

struct Place {  // where an agent is
  std::uint32_t host = 0;
  std::uint32_t job = 0;  // its place in the mix from 1; 0: of a trace
  auto operator<=>(const Place&) const = default;
};
// "host 3, job 12 bert"; `jobs`: the mix's names, by which it is said.
std::string name_of(const Place& place, const std::vector<std::string>& jobs);

// Of a trace each flow has a lane of its own, as if it opened a connection; of a job each pair of hosts has one, as in
// a communicator.
class Plan {
 public:
  static Plan of(const Trace& trace);
  // Where jobs get their hosts while they run, each job that may send has all pairs.
  static Plan of(const JobMix& mix);

  struct Lane {
    Place from, to;
  };
  const std::vector<Lane>& lanes() const { return lanes_; }
  std::map<std::uint32_t, std::set<std::uint32_t>> jobs_of_hosts() const;  // whose lanes begin or end there

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

std::vector<std::string> names_of(const JobMix& mix);  // of its jobs

void scale(Trace& trace, double by);  // all sizes
void scale(JobMix& mix, double by);

// The largest that is taken on.
inline constexpr std::size_t kMostLanes = 16'384;
inline constexpr std::size_t kMostNeighbours = 900;  // the kernel has 1,024 places for those of all hosts together
inline constexpr std::size_t kMostPlaces = 256;
inline constexpr std::size_t kMostJobsOfAHost = 60;  // that send: processes of a NIC agree up to 64

struct SizeLimits {
  bool of_host = false;                      // kMostJobsOfAHost: each job has a process that agrees with others
  bool in_all = false;                       // kMostPlaces: all jobs have processes, wherever they are placed
  std::string_view lower = "fewer coflows";  // what makes it less
};
// kInvalidArgument, with what is allowed.
Result<void> check_size(const Plan& plan, const std::string& workload, const SizeLimits& limits);

// Of the port that has most to send or to receive: bytes.
double bottleneck(const clustar::coflow::CoflowSpec& coflow);

}  // namespace clustar::bench::coflow::live
