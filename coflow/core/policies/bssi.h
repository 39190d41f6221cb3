// Coflows in BSSI order (Sincronia), enforced as priority queues would: strict priority between classes, max-min
// fairness inside each. A class is a coflow, or one of `levels` priority levels.
#pragma once

#include "coflow/core/bssi_order.h"
#include "coflow/core/priority.h"
#include "coflow/core/scheduler.h"

namespace clustar::coflow {

struct BssiOptions {
  int levels = 0;  // priority levels that the network has, 1 at least; 0: one for each coflow
  // Bytes of the last level over those of the first, 1 at least. On Facebook's trace 8 equal levels cost 16 % of the
  // average completion time, 8 of such spread nothing (docs/results/coflow-2026-11-22.md).
  double spread = 1000;
};

class Bssi final : public Scheduler {
 public:
  Bssi(const Table& table, const BssiOptions& options);

  bool reallocates_at_flow_ends() const override { return true; }
  void arrived(CoflowId coflow, TimePoint now) override;
  void flow_added(FlowId flow, TimePoint now) override;
  void flow_ended(FlowId flow, TimePoint now) override;
  void departed(CoflowId coflow, TimePoint now) override;
  void port_changed(PortId, TimePoint) override { reorder_ = true; }
  Allocation allocate(TimePoint now) override;

 private:
  const Table& table_;
  const BssiOptions options_;
  bool reorder_ = false;  // a coflow came or went
  std::vector<CoflowId> coflows_;
  std::vector<std::vector<CoflowId>> classes_;
  BssiOrder order_;
  StrictPriority priority_;
};

// The unfinished of `coflows` in BSSI order, by what is left of them.
std::vector<CoflowId> bssi_order_of(const Table& table, std::span<const CoflowId> coflows, BssiOrder& order);

}  // namespace clustar::coflow
