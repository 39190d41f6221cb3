#include "coflow/core/rates.h"

namespace clustar::coflow {

void Rates::begin() {
  ++round_;
  serving_.clear();
}

void Rates::reach(FlowId flow) {
  if (flow < rates_.size()) return;
  rates_.resize(flow + 1, 0);
  next_.resize(flow + 1, 0);
  rounds_.resize(flow + 1, 0);
}

void Rates::give(FlowId flow, double rate) {
  reach(flow);
  if (rounds_[flow] != round_) {
    rounds_[flow] = round_;
    next_[flow] = 0;
    serving_.push_back(flow);
  }
  next_[flow] += rate;
}

std::span<const RateChange> Rates::end() {
  changes_.clear();
  for (const FlowId flow : served_) {
    if (rounds_[flow] == round_ || rates_[flow] == 0) continue;
    rates_[flow] = 0;
    changes_.push_back({flow, 0});
  }
  for (const FlowId flow : serving_) {
    if (next_[flow] == rates_[flow]) continue;
    rates_[flow] = next_[flow];
    changes_.push_back({flow, next_[flow]});
  }
  served_.swap(serving_);
  return changes_;
}

}  // namespace clustar::coflow
