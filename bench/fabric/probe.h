// Proof that packets, not 64 KB super-packets, pass the switches: bursts of TCP between the hosts, watched at every
// port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct PacketProof {
  std::uint64_t largest_bytes = 0;      // frame without FCS, among those that were looked at
  std::uint64_t allowed_bytes = 0;      // MTU + 14, of the port with the largest MTU; each port is held to its own
  std::uint64_t seen_packets = 0;       // at all ports, in both directions: the burst and whatever else passed
  std::uint64_t oversized_packets = 0;  // of all that passed, not of a sample
  std::uint64_t burst_bytes = 0;        // of each host, the first time
  std::uint64_t arrived_bytes = 0;      // of all hosts' bursts together

  std::vector<std::string> unseen_switches;  // that no packet passed: nothing is proved of them

  bool complete() const { return arrived_bytes > 0 && seen_packets > 0 && unseen_switches.empty(); }
  bool per_packet() const { return complete() && oversized_packets == 0; }
};

// Each host sends a burst (20 ms of its line, 16 packets at least, 256 KiB at most) to another one; where there are
// several switches, again with other pairs and ports until each switch has been passed. Bounded by 5 s: on a saturated
// fabric less than the burst may have arrived by then. Needs root.
Result<PacketProof> prove_packets(const FabricSpec& spec);

}  // namespace clustar::bench::fabric
