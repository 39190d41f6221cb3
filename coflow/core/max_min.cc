#include "coflow/core/max_min.h"

#include <algorithm>
#include <limits>

namespace clustar::coflow {

MaxMinFilling::MaxMinFilling(const Table& table) : table_(table) {
  for (Side* side : {&out_, &in_}) side->waiting.assign(table.ports(), 0);
}

template <class Visit>
void MaxMinFilling::for_each_waiting(std::span<const Links* const> coflows, PortId port, bool sends,
                                     const Visit& visit) const {
  for (const Links* links : coflows) {
    const Links::Ends& ends = sends ? links->out() : links->in();
    if (!ends.ports.test(port)) continue;
    ends.peers_of(port).for_each_common((sends ? in_ : out_).open, [&](PortId other) {
      visit(other,
            static_cast<double>(sends ? links->between(table_, port, other) : links->between(table_, other, port)));
    });
  }
}

void MaxMinFilling::open_ports(std::span<const Links* const> coflows, const PortSet* senders, double full,
                               const FreePorts& free) {
  out_.open = in_.open = PortSet(table_.ports());
  for (const Links* links : coflows) {
    links->out().ports.for_each([&](PortId port) {
      if (free.out[port] > full && (senders == nullptr || senders->test(port))) out_.open.set(port);
    });
    links->in().ports.for_each([&](PortId port) {
      if (free.in[port] > full) in_.open.set(port);
    });
  }
}

void MaxMinFilling::count(std::span<const Links* const> coflows) {
  const auto each = [&](Side& side, const PortSet& others, bool sends) {
    side.used.clear();
    side.open.for_each([&](PortId port) {
      std::size_t flows = 0;
      for (const Links* links : coflows) {
        if ((sends ? links->out() : links->in()).ports.test(port)) flows += links->at(table_, port, sends, others);
      }
      side.waiting[port] = static_cast<double>(flows);
      if (flows > 0) side.used.push_back(port);
    });
  };
  each(out_, in_.open, true);
  each(in_, out_.open, false);
}

// What the first port to be full gives each of those that wait there.
double MaxMinFilling::least_share(Side& side, const std::vector<double>& free) const {
  double least = std::numeric_limits<double>::infinity();
  std::size_t kept = 0;
  for (const PortId port : side.used) {
    if (side.waiting[port] <= 0) continue;
    side.used[kept++] = port;
    least = std::min(least, std::max(free[port], 0.0) / side.waiting[port]);
  }
  side.used.resize(kept);
  return least;
}

void MaxMinFilling::fill(std::span<const Links* const> coflows, const PortSet* senders, double full, FreePorts& free,
                         PortShares& shares) {
  open_ports(coflows, senders, full, free);
  count(coflows);
  // Ports that never become full do not limit any flow; those that are not open give nothing.
  shares.out.assign(table_.ports(), 0);
  shares.in.assign(table_.ports(), 0);
  for (const PortId port : out_.used) shares.out[port] = table_.rates_out()[port];
  for (const PortId port : in_.used) shares.in[port] = table_.rates_in()[port];
  while (true) {
    const double share = std::min(least_share(out_, free.out), least_share(in_, free.in));
    if (out_.used.empty() || in_.used.empty()) break;
    const auto settle = [&](bool sends) {
      Side& side = sends ? out_ : in_;
      Side& others = sends ? in_ : out_;
      auto& here = sends ? free.out : free.in;
      auto& across = sends ? free.in : free.out;
      // Others that would be full at the same share, but for rounding, are as well now: fewer rounds.
      constexpr double kAlike = 1 + 1e-12;
      for (const PortId port : side.used) {
        if (side.waiting[port] <= 0 || here[port] > share * kAlike * side.waiting[port]) continue;
        const double rate = here[port] > full ? share : 0;
        for_each_waiting(coflows, port, sends, [&](PortId other, double count) {
          others.waiting[other] -= count;
          across[other] -= count * rate;
        });
        here[port] -= side.waiting[port] * rate;
        side.waiting[port] = 0;
        side.open.clear(port);
        (sends ? shares.out : shares.in)[port] = rate;
      }
    };
    settle(true);
    settle(false);
  }
}

}  // namespace clustar::coflow
