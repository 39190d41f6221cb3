// Waist 3: who may send how fast. Events in, changed rates out.
//
// A scheduler is pure and single-threaded: `now` never decreases, and the same events give the same rates. It reads the
// table that it was made with, which the caller has brought up to date before arrived() and allocate(): in
// flow_ended() and departed() that goes for the flow and the coflow in question only. Rates never exceed what a port
// has (within a rounding error).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coflow/core/table.h"

namespace clustar::coflow {

struct RateChange {
  FlowId flow = 0;
  double rate = 0;  // bytes per the table's rate_unit
};

// Rates in another form, for policies that know no coflows: each flow gets the lesser of its sender's and its
// receiver's share.
struct PortShares {
  std::vector<double> out, in;  // per port; bytes per the table's rate_unit
  double of(const Flow& flow) const { return out[flow.src] < in[flow.dst] ? out[flow.src] : in[flow.dst]; }
};

struct Allocation {
  std::span<const RateChange> changes;  // since the last one; each flow once. Valid until the scheduler's next call
  const PortShares* shares = nullptr;   // if set, the rates of all flows, and `changes` is empty
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Whether an ended flow is a reason to allocate. Otherwise only arrived and departed coflows are, and a flow's rate
  // is wasted from its end to the next of these.
  virtual bool reallocates_at_flow_ends() const = 0;

  // Whether it can keep the deadline of a coflow that is in the table. One that it cannot is not told of again.
  virtual bool admits(CoflowId /*coflow*/, TimePoint /*now*/) { return true; }
  virtual void arrived(CoflowId coflow, TimePoint now) = 0;  // it is in the table, and has flows
  // One more of a coflow that has arrived; it is in the table.
  virtual void flow_added(FlowId flow, TimePoint now) = 0;
  virtual void flow_ended(FlowId /*flow*/, TimePoint /*now*/) {}
  virtual void departed(CoflowId coflow, TimePoint now) = 0;  // after the last flow_ended

  // The port has other rates in the table.
  virtual void port_changed(PortId /*port*/, TimePoint /*now*/) {}

  virtual Allocation allocate(TimePoint now) = 0;
  // When it would allocate otherwise though nothing came or went, if rates stay as they are.
  virtual std::optional<TimePoint> next_timeout(TimePoint /*now*/) const { return std::nullopt; }
};

}  // namespace clustar::coflow
