#include "coflow/core/max_min.h"

#include <algorithm>
#include <limits>

namespace clustar::coflow {

MaxMinFilling::MaxMinFilling(std::size_t ports) {
  for (Side* side : {&out_, &in_}) {
    side->waiting.assign(ports, 0);
    side->begin.assign(ports, 0);
  }
}

// Counting sort of the places in `flows` by port.
void MaxMinFilling::sort(const Table& table, std::span<const FlowId> flows, Side& side, bool out) {
  const auto port_of = [&](FlowId flow) { return out ? table.flow(flow).src : table.flow(flow).dst; };
  side.used.clear();
  for (const FlowId flow : flows) {
    if (side.waiting[port_of(flow)]++ == 0) side.used.push_back(port_of(flow));
  }
  std::uint32_t begin = 0;
  for (const PortId port : side.used) {
    side.begin[port] = begin;
    begin += side.waiting[port];
  }
  side.of.resize(flows.size());
  at_.assign(side.begin.begin(), side.begin.end());
  for (std::uint32_t place = 0; place < flows.size(); ++place) side.of[at_[port_of(flows[place])]++] = place;
}

void MaxMinFilling::fill(const Table& table, std::span<const FlowId> flows, double full, FreePorts& free,
                         Rates& rates) {
  sort(table, flows, out_, true);
  sort(table, flows, in_, false);
  given_.assign(flows.size(), false);
  while (true) {
    // The port that is full first, if all that wait get the same everywhere.
    double share = std::numeric_limits<double>::infinity();
    Side* side = nullptr;
    std::size_t at = 0;
    const auto look = [&](Side& candidate, const std::vector<double>& room) {
      for (std::size_t i = 0; i < candidate.used.size();) {
        const PortId port = candidate.used[i];
        if (candidate.waiting[port] == 0) {
          candidate.used[i] = candidate.used.back();
          candidate.used.pop_back();
          continue;
        }
        const double each = std::max(room[port], 0.0) / candidate.waiting[port];
        if (each < share) {
          share = each;
          side = &candidate;
          at = i;
        }
        ++i;
      }
    };
    look(out_, free.out);
    look(in_, free.in);
    if (side == nullptr) break;
    const bool sends = side == &out_;
    const PortId port = side->used[at];
    const auto left = side->waiting[port];
    side->waiting[port] = 0;
    side->used[at] = side->used.back();
    side->used.pop_back();
    Side& others = sends ? in_ : out_;
    std::uint32_t given = 0;
    for (std::uint32_t i = side->begin[port]; given < left; ++i) {
      const std::uint32_t place = side->of[i];
      if (given_[place]) continue;
      given_[place] = true;
      ++given;
      const Flow& flow = table.flow(flows[place]);
      --others.waiting[sends ? flow.dst : flow.src];
      if (share <= full) continue;
      free.take(flow, share);
      rates.give(flows[place], share);
    }
  }
}

}  // namespace clustar::coflow
