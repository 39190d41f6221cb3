#include "coflow/core/policies/dark.h"

#include <algorithm>
#include <utility>

namespace clustar::coflow {

Dark::Dark(const Table& table, const DarkOptions& options)
    : table_(table),
      options_(options),
      full_(options.full_below > 0 ? options.full_below : table.rate() * 1e-6),
      queues_(static_cast<std::size_t>(options.queues)),
      shares_(table.ports()),
      free_(table) {}

void Dark::arrived(CoflowId coflow, TimePoint) { queues_.front().push_back(coflow); }

void Dark::flow_ended(FlowId flow, TimePoint) { rates_.forget(flow); }

void Dark::departed(CoflowId coflow, TimePoint) {
  for (auto& queue : queues_) std::erase(queue, coflow);
}

int Dark::queue_of(double sent) const {
  int queue = 0;
  for (double limit = options_.first_limit; limit < sent && queue + 1 < options_.queues; limit *= options_.factor) {
    ++queue;
  }
  return queue;
}

void Dark::demote() {
  for (std::size_t i = 0; i + 1 < queues_.size(); ++i) {
    std::vector<CoflowId> stay;
    for (const CoflowId one : queues_[i]) {
      const bool leaves = queue_of(table_.coflow(one).sent) > static_cast<int>(i);
      (leaves ? queues_[i + 1] : stay).push_back(one);
    }
    queues_[i] = std::move(stay);
  }
}

Allocation Dark::allocate(TimePoint) {
  demote();
  rates_.begin();
  free_ = FreePorts(table_);
  for (const auto& queue : queues_) {
    for (const CoflowId coflow : queue) shares_.give(table_, {&coflow, 1}, full_, free_, rates_);
  }
  return {rates_.end(), nullptr};
}

}  // namespace clustar::coflow
