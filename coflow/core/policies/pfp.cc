#include "coflow/core/policies/pfp.h"

#include <algorithm>

namespace clustar::coflow {

Pfp::Pfp(const Table& table) : table_(table), lists_(table.ports()) {}

void Pfp::arrived(CoflowId coflow, TimePoint now) {
  for (const FlowId flow : table_.coflow(coflow).flows) flow_added(flow, now);
}

void Pfp::flow_added(FlowId id, TimePoint) {
  const Flow& flow = table_.flow(id);
  auto& list = lists_[flow.dst];
  // Flows that have sent may stand out of order, so the search is from the front.
  const auto after =
      std::find_if(list.begin(), list.end(), [&](const Listed& one) { return table_.flow(one.flow).left > flow.left; });
  list.insert(after, {id, flow.src});
}

void Pfp::flow_ended(FlowId flow, TimePoint) {
  auto& list = lists_[table_.flow(flow).dst];
  list.erase(std::find_if(list.begin(), list.end(), [&](const Listed& one) { return one.flow == flow; }));
  rates_.forget(flow);
}

Allocation Pfp::allocate(TimePoint) {
  rates_.begin();
  taken_.assign(table_.ports(), false);
  for (PortId port = 0; port < table_.ports(); ++port) {
    for (const Listed& one : lists_[port]) {
      const double rate = table_.rate_between(one.src, port);
      if (taken_[one.src] || rate <= 0) continue;
      taken_[one.src] = true;
      rates_.give(one.flow, rate);
      break;
    }
  }
  return {rates_.end(), nullptr};
}

}  // namespace clustar::coflow
