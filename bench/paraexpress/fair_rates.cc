#include "bench/paraexpress/fair_rates.h"

#include <algorithm>
#include <functional>

namespace clustar::bench::paraexpress {

FairRates::FairRates(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      left_(capacities_.size()),
      unfrozen_(capacities_.size(), 0),
      waiting_(capacities_.size(), 0),
      begin_(capacities_.size()) {}

void FairRates::fill(const std::vector<FlowPath>& flows, std::vector<double>& rates) {
  rates.assign(flows.size(), -1);
  touched_.clear();
  for (const FlowPath& flow : flows) {
    for (std::uint32_t i = 0; i < flow.count; ++i) {
      const std::uint32_t resource = flow.resources[i];
      if (waiting_[resource]++ == 0) touched_.push_back(resource);
      unfrozen_[resource] += flow.copies;
    }
  }
  heap_.clear();
  std::uint32_t place = 0;
  for (const std::uint32_t resource : touched_) {
    left_[resource] = capacities_[resource];
    begin_[resource] = place;
    place += waiting_[resource];
    heap_.emplace_back(left_[resource] / static_cast<double>(unfrozen_[resource]), resource);
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
    if (waiting_[resource] == 0) continue;
    const double share = std::max(0.0, left_[resource] / static_cast<double>(unfrozen_[resource]));
    if (share > old * (1 + 1e-12)) {
      heap_.emplace_back(share, resource);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      continue;
    }
    // Filling the lists has moved begin_ to their ends.
    for (std::uint32_t at = begin_[resource]; waiting_[resource] > 0;) {
      const std::uint32_t flow = flows_of_[--at];
      if (rates[flow] >= 0) continue;
      rates[flow] = share;
      for (std::uint32_t i = 0; i < flows[flow].count; ++i) {
        const std::uint32_t crossed = flows[flow].resources[i];
        left_[crossed] -= share * flows[flow].copies;
        unfrozen_[crossed] -= flows[flow].copies;
        --waiting_[crossed];
      }
    }
  }
}

}  // namespace clustar::bench::paraexpress
