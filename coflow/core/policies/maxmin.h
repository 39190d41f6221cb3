// Max-min fairness between flows, which is what TCP tends to: the baseline that does without coflows. Progressive
// filling (Bertsekas and Gallager, Data Networks, 6.5.2) over the numbers of flows between each two ports, not over the
// flows.
#pragma once

#include "coflow/core/scheduler.h"

namespace clustar::coflow {

class MaxMin final : public Scheduler {
 public:
  explicit MaxMin(const Table& table);

  bool reallocates_at_flow_ends() const override { return true; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId, TimePoint) override {}
  // O(ports^2).
  Allocation allocate(TimePoint now) override;

 private:
  struct Side {
    std::vector<double> flows;  // now, per port
    // One allocation's: what is free, among how many, and whether the port's share is known.
    std::vector<double> free, waiting;
    std::vector<bool> filled;
  };
  void count(FlowId flow, int flows);
  std::uint32_t& between(PortId src, PortId dst) { return flows_[src * table_.ports() + dst]; }

  const Table& table_;
  std::vector<std::uint32_t> flows_;  // [src][dst]
  Side out_, in_;
  PortShares shares_;
};

}  // namespace clustar::coflow
