// A flow-level simulator: a workload's coflows under a scheduler. Flows send at the rates that they are given, and
// nothing else takes time.
#pragma once

#include <functional>
#include <vector>

#include "bench/coflow/workload.h"
#include "coflow/registry.h"

namespace clustar::bench::coflow {

struct Rules {
  double port_rate = 125e6;  // bytes per rate_unit and direction
  Duration rate_unit = std::chrono::seconds(1);
  // Arrivals are admitted together: at the start of each epoch those that come until its end. 0: each at its own time.
  Duration epoch{0};
  // Flows end at multiples of it only, the rest of the tick is wasted. 0: exactly.
  Duration tick{0};
  // Schedulers that reallocate when flows end do so at most this often. 0: at every end.
  Duration refill{0};
  // Bytes are counted tick by tick and flow by flow, with the rounding errors of that; only with a tick.
  bool tick_by_tick = false;
  // A coflow that is later than its deadline by less than either is in time: a time, and a share of the time it had.
  Duration late_by{0};
  double late_share = 0;
};
// CoflowSim's (github.com/coflow/coflowsim b61f209): 1 Gbit/s is 2^30 bit in 1,024 ms, ticks of 8 ms, epochs of 10.24
// s.
Rules coflowsim_rules();

struct CoflowResult {
  std::uint64_t label = 0;
  TimePoint arrival;
  TimePoint began;  // when it was admitted; under CoflowSim's rules up to an epoch before its arrival
  TimePoint ended;
  bool rejected = false;  // its deadline cannot be kept
  bool late = false;      // it ended after its deadline
  double bytes = 0;
  double weight = 1;
  double longest_flow = 0;  // bytes
  double isolated_s = 0;    // what it would take alone: Gamma
  std::size_t flows = 0;
  std::size_t senders = 0, receivers = 0;
  double cct_s() const { return std::chrono::duration<double>(ended - began).count(); }
};

struct Replay {
  std::vector<CoflowResult> coflows;  // as they were taken
  std::uint64_t allocations = 0;
  std::uint64_t changes = 0;  // of rates; 0 for policies that give shares
  double cpu_s = 0;
};

// Called now and then with what has ended and what has come.
using Progress = std::function<void(std::size_t ended, std::size_t arrived, TimePoint now)>;

// Asked at each step; true: give up.
using Stop = std::function<bool()>;

// Errors: a coflow that the table refuses, or a scheduler that leaves flows without rates forever; kUnavailable:
// stop().
Result<Replay> replay(Workload& workload, const Rules& rules, const clustar::coflow::Policy& policy,
                      const Progress& progress = {}, const Stop& stop = {});

}  // namespace clustar::bench::coflow
