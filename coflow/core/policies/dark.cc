#include "coflow/core/policies/dark.h"

#include <algorithm>
#include <utility>

namespace clustar::coflow {

Dark::Dark(const Table& table, const DarkOptions& options)
    : table_(table),
      options_(options),
      full_(options.full_below > 0 ? options.full_below : table.rate() * 1e-6),
      queues_(static_cast<std::size_t>(options.queues)),
      free_(table),
      used_out_(table.ports(), 0),
      used_in_(table.ports(), 0),
      flows_out_(table.ports(), 0),
      flows_in_(table.ports(), 0) {}

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

void Dark::serve(CoflowId id) {
  const auto each = [&](const auto& visit) {
    for (const Receiver& receiver : table_.coflow(id).receivers) {
      if (free_.in[receiver.port] <= full_) continue;
      for (const FlowId at : table_.flows_to(receiver)) {
        if (free_.out[table_.flow(at).src] > full_) visit(at, table_.flow(at));
      }
    }
  };
  std::fill(flows_out_.begin(), flows_out_.end(), 0);
  std::fill(flows_in_.begin(), flows_in_.end(), 0);
  each([&](FlowId, const Flow& flow) {
    ++flows_out_[flow.src];
    ++flows_in_[flow.dst];
  });
  each([&](FlowId at, const Flow& flow) {
    const double rate = std::min(free_.out[flow.src] / flows_out_[flow.src], free_.in[flow.dst] / flows_in_[flow.dst]);
    if (rate <= full_) return;
    rates_.give(at, rate);
    used_out_[flow.src] += rate;
    used_in_[flow.dst] += rate;
  });
  for (PortId port = 0; port < table_.ports(); ++port) {
    free_.out[port] -= used_out_[port];
    free_.in[port] -= used_in_[port];
    used_out_[port] = used_in_[port] = 0;
  }
}

Allocation Dark::allocate(TimePoint) {
  demote();
  rates_.begin();
  free_ = FreePorts(table_);
  for (const auto& queue : queues_) {
    for (const CoflowId coflow : queue) serve(coflow);
  }
  return {rates_.end(), nullptr};
}

}  // namespace clustar::coflow
