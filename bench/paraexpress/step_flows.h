// An all-reduce by a forest at the level of flows, step by step, up to thousands of ranks: what the messages of a step
// share by max-min fairness over NICs and uplinks, with the headers and control packets that each of them brings along.
//
// All messages of a step begin together, and the next step's when the last of its bytes has left; latencies add up
// along the longest way of a tree, since no message waits for those of other trees. Results are taken for going back as
// sums came; a ring's, which go on around it, load each NIC and uplink alike and have as many steps.
//
// Hosts of a region that send and receive alike get alike (an equitable partition: each host of a class has as many
// flows to and from each other class), so flows between two such classes are worked out as one.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/paraexpress/fair_rates.h"
#include "paraexpress/core/forest.h"
#include "paraexpress/core/group.h"

namespace clustar::bench::paraexpress {

struct FlowNetwork {
  double nic_bytes_per_s = 5e9;  // each direction, headers included
  // Of one message beside its bytes: within a region, and through two uplinks.
  double within_s = 20e-6, across_s = 20e-6;
  double packet_payload = 0;    // the most of a packet; 0: no headers
  double packet_overhead = 0;   // headers of each packet, and what it takes on the line beside its bytes
  double message_overhead = 0;  // control packets of a message
  // Links of a path beside the first, each of which takes in a packet before it passes it on.
  double within_hops = 0, across_hops = 0;

  double wire_bytes(double payload) const;
};

struct FlowRun {
  double seconds = 0;
  double busiest_uplink_bytes = 0;  // on the wire, in the direction that has more
  std::uint64_t messages = 0;
};

class StepFlows {
 public:
  // Both are to be consistent, and each shard is to have bytes. Steps of up to `few` messages are worked out message by
  // message, others by classes.
  StepFlows(const clustar::paraexpress::Forest& forest, const clustar::paraexpress::Group& group,
            std::size_t few = 1 << 14);

  // `chunks` per shard: in turn or step by step, whichever ends sooner. The uplinks are the group's regions'.
  FlowRun run(const FlowNetwork& network, const clustar::paraexpress::RegionMap& regions, std::uint64_t bytes,
              std::uint32_t chunks) const;

  // What one step is worked out with.
  std::size_t most_classes() const;
  std::size_t distinct_steps() const { return steps_.size(); }

 private:
  struct Edge {
    clustar::paraexpress::Member from = 0, to = 0;
    std::uint32_t weight = 0;  // in weights_
  };
  // Edges that are there so many times.
  struct Part {
    const std::vector<Edge>* edges = nullptr;
    std::uint32_t repeats = 1;
  };
  // Messages alike, from one class of hosts to another; a class is of one region.
  struct Flows {
    std::uint32_t from = 0, to = 0;
    std::uint32_t from_region = 0, to_region = 0;
    std::uint32_t weight = 0;
    std::uint32_t copies = 0;
  };
  struct Step {
    std::uint32_t repeats = 1;                // so many steps are alike
    std::vector<std::uint32_t> class_size{};  // hosts
    std::vector<Flows> flows{};
  };
  // From a leaf to its root: messages within regions, and from one to another.
  struct Way {
    std::uint32_t within = 0, across = 0;
    bool operator==(const Way&) const = default;
  };

  // `both`: each edge in reverse, too.
  Step step_of(const std::vector<Part>& parts, bool both) const;
  std::vector<std::uint32_t> classes_of(const std::vector<Part>& parts, bool both) const;
  void add_ways(const clustar::paraexpress::Shard& shard, const std::vector<clustar::paraexpress::Member>& order);
  double latency(const FlowNetwork& network, double payload) const;
  // Until the last byte has left, each flow's bytes times `messages`.
  double drain(const Step& step, const FlowNetwork& network, const clustar::paraexpress::RegionMap& regions,
               double bytes, double messages) const;

  std::uint32_t members_ = 0;
  std::size_t few_ = 0;
  std::vector<std::uint32_t> region_of_{};
  std::vector<double> weights_{};  // distinct ones, as shares of the buffer
  std::vector<Step> steps_{};      // the way up; the way down is the same in reverse
  Step all_{};                     // both ways at once
  std::vector<Way> ways_{};        // the longest: none has both numbers below another's
};

}  // namespace clustar::bench::paraexpress
