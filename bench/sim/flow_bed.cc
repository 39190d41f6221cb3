#include "bench/sim/flow_bed.h"

#include <algorithm>
#include <cmath>

#include "bench/sim/testbed.h"
#include "mlt/core/wire.h"
#include "paraexpress/core/fit.h"
#include "paraexpress/engine/engine.h"

namespace clustar::bench::sim {
namespace {

constexpr std::uint64_t kBps = 10'000'000'000;
// Of a message's other packets: what the receiver says when it is posted, credit, acknowledgements. By the simulated
// ports' counters: 31 x 32 messages of 128 bytes there and back put 586 bytes each on an uplink, so much of it is
// these.
constexpr double kControlBytes = 330;

}  // namespace

paraexpress::FlowNetwork flow_network() {
  const mlt::Options options = driver_options(kBps);
  paraexpress::FlowNetwork network;
  network.nic_bytes_per_s = kBps / 8.0;
  network.across_s = 10e-6;
  network.within_s = 5e-6;
  network.packet_payload = options.segment;
  network.packet_overhead = mlt::DataHeader::kSize + transport::sim::SimulationOptions{}.overhead_bytes;
  network.message_overhead = kControlBytes;
  network.within_hops = 1;
  network.across_hops = 3;
  return network;
}

FlowBed::FlowBed(const px::Group& group) : group_(group) {
  for (const px::Plan plan : px::kPlans) {
    if (!px::makes_sense(plan, group)) continue;
    const px::Forest forest = px::build(plan, group);
    std::uint64_t sum = 0, largest = 0;
    for (const px::Shard& shard : forest.shards) {
      sum += shard.weight;
      largest = std::max(largest, shard.weight);
    }
    plans_.push_back({plan, static_cast<double>(largest) / static_cast<double>(sum), {forest, group}});
  }
}

const FlowBed::Built& FlowBed::built(px::Plan plan) const {
  return *std::find_if(plans_.begin(), plans_.end(), [&](const Built& one) { return one.plan == plan; });
}

paraexpress::FlowRun FlowBed::run(const px::Candidate& candidate, std::uint64_t bytes) const {
  // As the engine cuts: no chunk below its least or above its most.
  const Built& plan = built(candidate.plan);
  const double shard = plan.largest_share * static_cast<double>(bytes);
  const double chunk = std::clamp(shard / candidate.cost.chunks, static_cast<double>(px::kLeastChunk),
                                  static_cast<double>(px::EngineOptions{}.chunk_bytes));
  const auto chunks = static_cast<std::uint32_t>(std::ceil(shard / chunk * (1 - 1e-12)));
  return plan.flows.run(flow_network(), group_.regions, bytes, std::max(1u, chunks));
}

px::Network FlowBed::measured() const {
  px::Network network;
  network.most_chunk_bytes = px::EngineOptions{}.chunk_bytes;
  const auto seconds = [&](px::Plan plan, std::uint64_t bytes) {
    return built(plan).flows.run(flow_network(), group_.regions, bytes, 1).seconds;
  };
  return px::fit(group_, px::measured_by(seconds), network);
}

}  // namespace clustar::bench::sim
