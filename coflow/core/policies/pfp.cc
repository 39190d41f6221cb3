#include "coflow/core/policies/pfp.h"

#include <algorithm>

namespace clustar::coflow {

Pfp::Pfp(const Table& table) : table_(table), lists_(table.ports()) {}

void Pfp::arrived(CoflowId coflow, TimePoint) {
  for (const Receiver& receiver : table_.coflow(coflow).receivers) {
    auto& list = lists_[receiver.port];
    for (const FlowId flow : table_.flows_to(receiver)) {
      const double bytes = table_.flow(flow).left;
      // Flows that have sent may stand out of order, so the search is from the front.
      const auto after =
          std::find_if(list.begin(), list.end(), [&](FlowId one) { return table_.flow(one).left > bytes; });
      list.insert(after, flow);
    }
  }
}

void Pfp::flow_ended(FlowId flow, TimePoint) {
  auto& list = lists_[table_.flow(flow).dst];
  list.erase(std::find(list.begin(), list.end(), flow));
  rates_.forget(flow);
}

Allocation Pfp::allocate(TimePoint) {
  rates_.begin();
  taken_.assign(table_.ports(), false);
  for (const auto& list : lists_) {
    for (const FlowId flow : list) {
      const PortId src = table_.flow(flow).src;
      if (taken_[src]) continue;
      taken_[src] = true;
      rates_.give(flow, table_.rate());
      break;
    }
  }
  return {rates_.end(), nullptr};
}

}  // namespace clustar::coflow
