#include "coflow/core/policies/maxmin.h"

#include <limits>

namespace clustar::coflow {

MaxMin::MaxMin(const Table& table)
    : table_(table),
      flows_(table.ports() * table.ports(), 0),
      shares_{std::vector<double>(table.ports()), std::vector<double>(table.ports())} {
  for (Side* side : {&out_, &in_}) side->flows.resize(table.ports(), 0);
}

void MaxMin::arrived(CoflowId coflow, TimePoint) {
  for (const Receiver& receiver : table_.coflow(coflow).receivers) {
    for (const FlowId flow : table_.flows_to(receiver)) {
      const PortId src = table_.flow(flow).src;
      ++between(src, receiver.port);
      ++out_.flows[src];
      ++in_.flows[receiver.port];
    }
  }
}

void MaxMin::flow_ended(FlowId id, TimePoint) {
  const Flow& flow = table_.flow(id);
  --between(flow.src, flow.dst);
  --out_.flows[flow.src];
  --in_.flows[flow.dst];
}

Allocation MaxMin::allocate(TimePoint) {
  const std::size_t ports = table_.ports();
  for (Side* side : {&out_, &in_}) {
    side->waiting = side->flows;
    side->free.assign(ports, table_.rate());
    side->filled.assign(ports, false);
  }
  shares_.out.assign(ports, table_.rate());
  shares_.in.assign(ports, table_.rate());
  while (true) {
    // The port that is full first, if all that wait get the same everywhere.
    double share = std::numeric_limits<double>::infinity();
    std::size_t port = ports;
    bool sends = false;
    for (std::size_t i = 0; i < ports; ++i) {
      if (out_.waiting[i] > 0 && out_.free[i] < share * out_.waiting[i]) {
        share = out_.free[i] / out_.waiting[i];
        port = i;
        sends = true;
      }
      if (in_.waiting[i] > 0 && in_.free[i] < share * in_.waiting[i]) {
        share = in_.free[i] / in_.waiting[i];
        port = i;
        sends = false;
      }
    }
    if (port == ports) break;
    Side& side = sends ? out_ : in_;
    Side& others = sends ? in_ : out_;
    side.filled[port] = true;
    side.waiting[port] = 0;
    (sends ? shares_.out : shares_.in)[port] = share;
    for (std::size_t other = 0; other < ports; ++other) {
      if (others.filled[other]) continue;
      const double flows = sends ? flows_[port * ports + other] : flows_[other * ports + port];
      if (flows == 0) continue;
      others.waiting[other] -= flows;
      others.free[other] = others.free[other] > flows * share ? others.free[other] - flows * share : 0;
    }
  }
  return {{}, &shares_};
}

}  // namespace clustar::coflow
