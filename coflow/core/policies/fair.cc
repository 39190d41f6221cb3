#include "coflow/core/policies/fair.h"

namespace clustar::coflow {

Fair::Fair(const Table& table)
    : table_(table),
      flows_out_(table.ports(), 0),
      flows_in_(table.ports(), 0),
      shares_{std::vector<double>(table.ports()), std::vector<double>(table.ports())} {}

void Fair::arrived(CoflowId coflow, TimePoint) {
  for (const Receiver& receiver : table_.coflow(coflow).receivers) {
    for (const FlowId flow : table_.flows_to(receiver)) {
      ++flows_out_[table_.flow(flow).src];
      ++flows_in_[receiver.port];
    }
  }
}

void Fair::flow_ended(FlowId flow, TimePoint) {
  --flows_out_[table_.flow(flow).src];
  --flows_in_[table_.flow(flow).dst];
}

Allocation Fair::allocate(TimePoint) {
  for (PortId port = 0; port < table_.ports(); ++port) {
    shares_.out[port] = flows_out_[port] > 0 ? table_.rate() / flows_out_[port] : table_.rate();
    shares_.in[port] = flows_in_[port] > 0 ? table_.rate() / flows_in_[port] : table_.rate();
  }
  return {{}, &shares_};
}

}  // namespace clustar::coflow
