// The flows of a replay whose rates are their ports' shares: many, and all of them move at every step. Kept apart from
// the table, in as few bytes as possible; the table learns of a flow's bytes when it has ended.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "coflow/core/scheduler.h"

namespace clustar::bench::coflow {

class SharedFlows {
 public:
  struct Ended {
    clustar::coflow::FlowId flow;
    double bytes;   // all it had
    double before;  // left at the start of the step
    double rate;
  };

  bool empty() const { return flows_.empty(); }
  void add(clustar::coflow::FlowId id, const clustar::coflow::Flow& flow);
  // When the first of them ends at these shares, in rate_units; infinity without flows.
  double first_end(const clustar::coflow::PortShares& shares) const;
  // Those with no more than `nothing` bytes left at the end of the step, `time` in rate_units, have ended and are gone.
  const std::vector<Ended>& advance(double time, const clustar::coflow::PortShares& shares, double nothing);

 private:
  struct One {
    double left;
    std::uint16_t src, dst;
    clustar::coflow::FlowId flow;
  };
  static_assert(clustar::coflow::kMaxPorts <= std::numeric_limits<std::uint16_t>::max());
  std::vector<One> flows_;
  std::vector<double> bytes_;  // by flow
  std::vector<double> out_, in_;
  std::vector<Ended> ended_;
};

}  // namespace clustar::bench::coflow
