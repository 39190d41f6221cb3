#include "coflow/core/policies/fair.h"

#include <algorithm>

namespace clustar::coflow {

Fair::Fair(const Table& table)
    : table_(table),
      flows_out_(table.ports(), 0),
      flows_in_(table.ports(), 0),
      shares_{std::vector<double>(table.ports()), std::vector<double>(table.ports())} {}

void Fair::count(FlowId flow, double flows) {
  flows_out_[table_.flow(flow).src] += flows;
  flows_in_[table_.flow(flow).dst] += flows;
}

void Fair::arrived(CoflowId coflow, TimePoint) {
  for (const FlowId flow : table_.coflow(coflow).flows) count(flow, 1);
}

void Fair::flow_added(FlowId flow, TimePoint) { count(flow, 1); }

void Fair::flow_ended(FlowId flow, TimePoint) { count(flow, -1); }

Allocation Fair::allocate(TimePoint) {
  for (PortId port = 0; port < table_.ports(); ++port) {
    shares_.out[port] = table_.rates_out()[port] / std::max(flows_out_[port], 1.0);
    shares_.in[port] = table_.rates_in()[port] / std::max(flows_in_[port], 1.0);
  }
  return {{}, &shares_};
}

}  // namespace clustar::coflow
