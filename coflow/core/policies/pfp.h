// Shortest flow first, greedily (CoflowSim's PFP, after pFabric and PDQ; github.com/coflow/coflowsim b61f209):
// receivers in the order of their ports take the first flow of their list whose sender nobody took, at full rate. A new
// flow goes before the first listed one that has more left than it has in all.
#pragma once

#include "coflow/core/rates.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

class Pfp final : public Scheduler {
 public:
  explicit Pfp(const Table& table);

  bool reallocates_at_flow_ends() const override { return true; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId, TimePoint) override {}
  Allocation allocate(TimePoint now) override;

 private:
  struct Listed {
    FlowId flow;
    PortId src;  // here, since a list is gone through at each allocation
  };

  const Table& table_;
  std::vector<std::vector<Listed>> lists_;  // per receiving port
  Rates rates_;
  std::vector<bool> taken_;
};

}  // namespace clustar::coflow
