// The rates that a scheduler gave, and what changed about them.
#pragma once

#include <span>
#include <vector>

#include "coflow/core/scheduler.h"

namespace clustar::coflow {

class Rates {
 public:
  double of(FlowId flow) const { return flow < rates_.size() ? rates_[flow] : 0; }

  // A new allocation: flows that are not given anything get nothing.
  void begin();
  // Adds to what this allocation gives. Finite, not negative.
  void give(FlowId flow, double rate);
  // What this allocation has given so far.
  double given(FlowId flow) const { return flow < rounds_.size() && rounds_[flow] == round_ ? next_[flow] : 0; }
  // The changes against the allocation before.
  std::span<const RateChange> end();

  // An ended flow has no rate. That is no change: nobody sends it any more.
  void forget(FlowId flow) {
    if (flow < rates_.size()) rates_[flow] = 0;
  }

 private:
  void reach(FlowId flow);

  std::vector<double> rates_, next_;
  std::vector<std::uint32_t> rounds_;  // the allocation in which the flow was last given something
  std::uint32_t round_ = 0;
  std::vector<FlowId> served_, serving_;  // flows with a rate: before, and in this allocation
  std::vector<RateChange> changes_;
};

// What is left of the ports' rates while an allocation is made.
struct FreePorts {
  explicit FreePorts(const Table& table) : out(table.rates_out()), in(table.rates_in()) {}
  double between(const Flow& flow) const { return out[flow.src] < in[flow.dst] ? out[flow.src] : in[flow.dst]; }
  void take(const Flow& flow, double rate) {
    out[flow.src] -= rate;
    in[flow.dst] -= rate;
  }
  std::vector<double> out, in;
};

}  // namespace clustar::coflow
