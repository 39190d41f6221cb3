// Strict priority between classes of flows, max-min fairness inside each: what TCP gives behind priority queues.
#pragma once

#include <span>
#include <vector>

#include "coflow/core/max_min.h"
#include "coflow/core/rates.h"

namespace clustar::coflow {

class StrictPriority {
 public:
  explicit StrictPriority(const Table& table);

  void begin();
  // The next class: all unfinished flows of these coflows.
  void serve(std::span<const CoflowId> coflows);
  // Only what these coflows' senders with `chosen[sender index]` send; one coflow at a time.
  void serve_senders(CoflowId coflow, const std::vector<bool>& chosen);
  // Whether a further class could get anything.
  bool any_free() const { return senders_free_ > 0 && receivers_free_ > 0; }
  std::span<const RateChange> end() { return rates_.end(); }
  void forget(FlowId flow) { rates_.forget(flow); }
  double rate(FlowId flow) const { return rates_.of(flow); }

 private:
  template <class Chosen>
  void collect(CoflowId coflow, const Chosen& chosen);
  void fill();

  const Table& table_;
  const double full_;
  Rates rates_;
  FreePorts free_;
  MaxMinFilling filling_;
  std::vector<FlowId> flows_;
  std::size_t senders_free_ = 0, receivers_free_ = 0;
};

}  // namespace clustar::coflow
