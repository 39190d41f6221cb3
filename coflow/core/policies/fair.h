// Per-flow fairness as CoflowSim has it (its FAIR; github.com/coflow/coflowsim b61f209): each flow the lesser of equal
// shares of its sender and of its receiver. What a flow cannot use of the larger share stays idle, so this is no
// max-min fairness and is slower than TCP would be.
#pragma once

#include "coflow/core/scheduler.h"

namespace clustar::coflow {

class Fair final : public Scheduler {
 public:
  explicit Fair(const Table& table);

  bool reallocates_at_flow_ends() const override { return true; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId, TimePoint) override {}
  Allocation allocate(TimePoint now) override;

 private:
  void count(FlowId flow, double flows);

  const Table& table_;
  std::vector<double> flows_out_, flows_in_;
  PortShares shares_;
};

}  // namespace clustar::coflow
