#include "coflow/core/equal_shares.h"

#include <algorithm>

namespace clustar::coflow {

EqualShares::EqualShares(std::size_t ports) {
  for (Side* side : {&out_, &in_}) {
    side->flows.assign(ports, 0);
    side->used.assign(ports, 0);
  }
}

void EqualShares::give(const Table& table, std::span<const CoflowId> coflows, double full, FreePorts& free,
                       Rates& rates) {
  const auto each = [&](const auto& visit) {
    for (const CoflowId id : coflows) {
      for (const Receiver& receiver : table.coflow(id).receivers) {
        if (free.in[receiver.port] <= full) continue;
        for (const FlowId at : table.flows_to(receiver)) {
          if (free.out[table.flow(at).src] > full) visit(at, table.flow(at));
        }
      }
    }
  };
  for (Side* side : {&out_, &in_}) {
    std::fill(side->flows.begin(), side->flows.end(), 0);
    std::fill(side->used.begin(), side->used.end(), 0);
  }
  each([&](FlowId, const Flow& flow) {
    ++out_.flows[flow.src];
    ++in_.flows[flow.dst];
  });
  each([&](FlowId at, const Flow& flow) {
    const double rate = std::min(free.out[flow.src] / out_.flows[flow.src], free.in[flow.dst] / in_.flows[flow.dst]);
    if (rate <= full) return;
    rates.give(at, rate);
    out_.used[flow.src] += rate;
    in_.used[flow.dst] += rate;
  });
  for (PortId port = 0; port < table.ports(); ++port) {
    free.out[port] -= out_.used[port];
    free.in[port] -= in_.used[port];
  }
}

}  // namespace clustar::coflow
