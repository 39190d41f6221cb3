// A schedule of heavy loss on one link, and what an oracle could do under it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/time.h"
#include "transport/sim/faults.h"

namespace clustar::bench::sim {

struct Burst {
  double loss = 0;  // 0 .. 1
  Duration length{};
};

// The bursts one after the other, a pause before each, and over again.
class BurstSchedule {
 public:
  BurstSchedule(const std::vector<Burst>& bursts, Duration gap);

  Duration period() const { return period_; }
  void add_to(transport::sim::FaultChain& faults) const;
  double loss_at(TimePoint at) const;
  // Whether any of it lies within [from, until].
  bool touches(TimePoint from, TimePoint until) const;

 private:
  struct Window {
    TimePoint from, until;  // within the period
    double loss;
  };
  std::vector<Window> windows_;
  Duration period_{};
};

struct OracleMessage {
  TimePoint begun{};
  TimePoint done{};
};

// The messages, one after the other, of a sender that fills the line, learns of each loss a round trip later, sends
// nothing twice for nothing, and ends a message when all but the fraction `may_miss` of its packets are there: nobody
// can do better under the schedule.
std::vector<OracleMessage> oracle(const BurstSchedule& schedule, std::uint32_t bytes, double may_miss, Duration run,
                                  std::uint64_t seed);

}  // namespace clustar::bench::sim
