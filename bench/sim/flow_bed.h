// ParaExpress's plans on the network of `plans`, flow by flow instead of packet by packet.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/paraexpress/step_flows.h"
#include "paraexpress/core/planner.h"

namespace clustar::bench::sim {

namespace px = clustar::paraexpress;

// 10 Gbit/s, 20 us there and back between leaves, half of that within one, MLT's headers.
paraexpress::FlowNetwork flow_network();

class FlowBed {
 public:
  // All plans that make sense but for those with helpers.
  explicit FlowBed(const px::Group& group);

  // Other uplinks of the same regions.
  void set_regions(const px::RegionMap& regions) { group_.regions = regions; }
  paraexpress::FlowRun run(const px::Candidate& candidate, std::uint64_t bytes) const;
  // The network as the engine measures it before its first operation; the regions are given.
  px::Network measured() const;
  const px::Group& group() const { return group_; }

 private:
  struct Built {
    px::Plan plan{};
    double largest_share = 0;  // of a shard
    paraexpress::StepFlows flows;
  };
  const Built& built(px::Plan plan) const;

  px::Group group_;
  std::vector<Built> plans_{};
};

}  // namespace clustar::bench::sim
