// Coflows of unknown size as CoflowSim schedules them (its DARK, after Aalo; github.com/coflow/coflowsim b61f209):
// queues by bytes sent with exponential limits, first in first out in each, strict priority between them. A coflow is
// moved only when another arrives or departs, and then to the end of the next queue. Each coflow gets, per flow, the
// lesser of equal shares of what is free at its sender and its receiver; nothing is filled up behind that.
#pragma once

#include "coflow/core/equal_shares.h"
#include "coflow/core/rates.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

struct DarkOptions {
  int queues = 10;
  double first_limit = 10 * 1048576.0;  // bytes
  double factor = 10;
  double full_below = 0;  // as in MaddOptions
};

class Dark final : public Scheduler {
 public:
  Dark(const Table& table, const DarkOptions& options);

  bool reallocates_at_flow_ends() const override { return false; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId, TimePoint) override {}
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId coflow, TimePoint now) override;
  Allocation allocate(TimePoint now) override;

 private:
  int queue_of(double sent) const;
  void demote();

  const Table& table_;
  const DarkOptions options_;
  const double full_;
  std::vector<std::vector<CoflowId>> queues_;
  Rates rates_;
  EqualShares shares_;
  FreePorts free_;  // one allocation's
};

}  // namespace clustar::coflow
