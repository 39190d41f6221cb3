#include "bench/paraexpress/fair_rates.h"

#include <algorithm>
#include <functional>

namespace clustar::bench::paraexpress {

FairRates::FairRates(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      left_(capacities_.size()),
      unfrozen_(capacities_.size(), 0),
      begin_(capacities_.size()) {}

void FairRates::fill(const std::vector<FlowPath>& flows, std::vector<double>& rates) {
  rates.assign(flows.size(), -1);
  touched_.clear();
  for (const FlowPath& flow : flows) {
    for (std::uint32_t i = 0; i < flow.count; ++i) {
      if (unfrozen_[flow.resources[i]]++ == 0) touched_.push_back(flow.resources[i]);
    }
  }
  heap_.clear();
  std::uint32_t place = 0;
  for (const std::uint32_t resource : touched_) {
    left_[resource] = capacities_[resource];
    begin_[resource] = place;
    place += unfrozen_[resource];
    heap_.emplace_back(left_[resource] / unfrozen_[resource], resource);
  }
  flows_of_.resize(place);
  for (std::uint32_t flow = 0; flow < flows.size(); ++flow) {
    for (std::uint32_t i = 0; i < flows[flow].count; ++i) flows_of_[begin_[flows[flow].resources[i]]++] = flow;
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  // Shares only grow while flows freeze, so an old one is at most the true one and is looked at in time.
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto [old, resource] = heap_.back();
    heap_.pop_back();
    if (unfrozen_[resource] == 0) continue;
    const double share = std::max(0.0, left_[resource] / unfrozen_[resource]);
    if (share > old * (1 + 1e-12)) {
      heap_.emplace_back(share, resource);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      continue;
    }
    // Filling the lists has moved begin_ to their ends.
    for (std::uint32_t at = begin_[resource]; unfrozen_[resource] > 0;) {
      const std::uint32_t flow = flows_of_[--at];
      if (rates[flow] >= 0) continue;
      rates[flow] = share;
      for (std::uint32_t i = 0; i < flows[flow].count; ++i) {
        left_[flows[flow].resources[i]] -= share;
        --unfrozen_[flows[flow].resources[i]];
      }
    }
  }
}

}  // namespace clustar::bench::paraexpress
