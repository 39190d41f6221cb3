#include "coflow/core/policies/maxmin.h"

#include <limits>

namespace clustar::coflow {

MaxMin::MaxMin(const Table& table)
    : table_(table),
      flows_(table.ports() * table.ports(), 0),
      shares_{std::vector<double>(table.ports()), std::vector<double>(table.ports())} {
  for (Side* side : {&out_, &in_}) side->flows.resize(table.ports(), 0);
}

void MaxMin::count(FlowId id, int flows) {
  const Flow& flow = table_.flow(id);
  between(flow.src, flow.dst) += static_cast<std::uint32_t>(flows);
  out_.flows[flow.src] += flows;
  in_.flows[flow.dst] += flows;
}

void MaxMin::arrived(CoflowId coflow, TimePoint) {
  for (const FlowId flow : table_.coflow(coflow).flows) count(flow, 1);
}

void MaxMin::flow_added(FlowId flow, TimePoint) { count(flow, 1); }

void MaxMin::flow_ended(FlowId flow, TimePoint) { count(flow, -1); }

Allocation MaxMin::allocate(TimePoint) {
  const std::size_t ports = table_.ports();
  for (Side* side : {&out_, &in_}) {
    side->waiting = side->flows;
    side->free = side == &out_ ? table_.rates_out() : table_.rates_in();
    side->filled.assign(ports, false);
  }
  shares_.out = table_.rates_out();
  shares_.in = table_.rates_in();
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
