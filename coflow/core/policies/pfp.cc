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
          std::find_if(list.begin(), list.end(), [&](const Listed& one) { return table_.flow(one.flow).left > bytes; });
      list.insert(after, {flow, table_.flow(flow).src});
    }
  }
}

void Pfp::flow_ended(FlowId flow, TimePoint) {
  auto& list = lists_[table_.flow(flow).dst];
  list.erase(std::find_if(list.begin(), list.end(), [&](const Listed& one) { return one.flow == flow; }));
  rates_.forget(flow);
}

Allocation Pfp::allocate(TimePoint) {
  rates_.begin();
  taken_.assign(table_.ports(), false);
  for (const auto& list : lists_) {
    for (const Listed& one : list) {
      if (taken_[one.src]) continue;
      taken_[one.src] = true;
      rates_.give(one.flow, table_.rate());
      break;
    }
  }
  return {rates_.end(), nullptr};
}

}  // namespace clustar::coflow
