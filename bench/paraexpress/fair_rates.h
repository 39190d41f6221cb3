// Max-min fair rates of flows that each cross a few resources: what long TCP or RDMA flows tend to.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace clustar::bench::paraexpress {

struct FlowPath {
  std::array<std::uint32_t, 4> resources{};
  std::uint32_t count = 0;
  std::uint32_t copies = 1;  // so many flows alike, which all get the same

  void add(std::uint32_t resource) { resources[count++] = resource; }
};

class FairRates {
 public:
  // In units per second.
  explicit FairRates(std::vector<double> capacities);
  // rates[i] of each copy of flows[i]. Each flow crosses at least one resource.
  void fill(const std::vector<FlowPath>& flows, std::vector<double>& rates);

 private:
  std::vector<double> capacities_, left_;
  std::vector<std::uint64_t> unfrozen_;  // copies
  std::vector<std::uint32_t> waiting_, begin_, flows_of_, touched_;
  std::vector<std::pair<double, std::uint32_t>> heap_;  // share, resource
};

}  // namespace clustar::bench::paraexpress
