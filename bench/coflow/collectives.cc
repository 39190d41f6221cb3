#include "bench/coflow/collectives.h"

#include <algorithm>

namespace clustar::bench::coflow {
namespace {

using clustar::coflow::FlowSpec;
using clustar::coflow::PortId;

class Flows {
 public:
  explicit Flows(const Layout& layout) : layout_(layout) {}
  PortId port_of(std::size_t rank) const {
    return static_cast<PortId>(layout_.first_port + rank / layout_.ranks_per_port);
  }
  void add(PortId src, PortId dst, double bytes) {
    if (src != dst) flows_.push_back({src, dst, bytes});
  }
  std::vector<FlowSpec> merged() {
    std::stable_sort(flows_.begin(), flows_.end(), [](const FlowSpec& a, const FlowSpec& b) {
      return a.src != b.src ? a.src < b.src : a.dst < b.dst;
    });
    std::vector<FlowSpec> merged;
    for (const FlowSpec& flow : flows_) {
      if (!merged.empty() && merged.back().src == flow.src && merged.back().dst == flow.dst) {
        merged.back().bytes += flow.bytes;
      } else {
        merged.push_back(flow);
      }
    }
    return merged;
  }

 private:
  const Layout layout_;
  std::vector<FlowSpec> flows_;
};

// Between ports, not ranks: n ranks have n^2 pairs.
void add_all_to_all(Flows& flows, const std::vector<std::size_t>& ranks) {
  std::vector<std::pair<PortId, double>> ports;  // and its ranks; these ascend
  for (const std::size_t rank : ranks) {
    if (ports.empty() || ports.back().first != flows.port_of(rank)) ports.emplace_back(flows.port_of(rank), 0);
    ++ports.back().second;
  }
  for (const auto& [src, senders] : ports) {
    for (const auto& [dst, receivers] : ports) {
      flows.add(src, dst, senders * receivers / static_cast<double>(ranks.size()));
    }
  }
}

void add_ring(Flows& flows, const std::vector<std::size_t>& ranks, Collective collective, std::size_t root) {
  const std::size_t n = ranks.size();
  const bool chain = collective == Collective::kBroadcast;
  const double part = static_cast<double>(n - 1) / static_cast<double>(n);
  const double bytes = chain ? 1 : collective == Collective::kAllReduce ? 2 * part : part;
  for (std::size_t i = 0; i + (chain ? 1 : 0) < n; ++i) {
    flows.add(flows.port_of(ranks[(root + i) % n]), flows.port_of(ranks[(root + i + 1) % n]), bytes);
  }
}

}  // namespace

std::vector<FlowSpec> flows_of(Collective collective, const Groups& groups, const Layout& layout, std::size_t root) {
  Flows flows(layout);
  std::vector<std::size_t> ranks(groups.size);
  const std::size_t block = groups.size * groups.stride;
  for (std::size_t begin = 0; begin < groups.world; begin += block) {
    for (std::size_t first = begin; first < begin + groups.stride; ++first) {
      for (std::size_t i = 0; i < groups.size; ++i) ranks[i] = first + i * groups.stride;
      if (collective == Collective::kAllToAll) {
        add_all_to_all(flows, ranks);
      } else {
        add_ring(flows, ranks, collective, root);
      }
    }
  }
  return flows.merged();
}

std::size_t flow_bound(Collective collective, const Groups& groups, const Layout& layout) {
  const std::size_t ports = layout.ports_of(groups.world), pairs = ports * (ports - 1);
  if (collective != Collective::kAllToAll) return std::min(groups.world, pairs);
  const std::size_t of_group = std::min(groups.size, ports);
  return groups.world / groups.size * of_group * of_group;
}

}  // namespace clustar::bench::coflow
