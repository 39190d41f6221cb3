// Cables with a delay: each is cut, and its two halves end in the fabric's wire namespace, where netem or the forwarder
// carries packets across. Which cable is which is kept in the halves' alias ("h0 leaf0 50000"), so the kernel knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/topology.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct WireCable {
  int number = 0;    // of the link in its topology
  std::string a, b;  // its nodes
  std::uint64_t rate_bps = 0, delay_ns = 0;
  int mtu = 1500;
  bool up = false;  // both halves are there and up

  std::string near_half() const;  // the half towards a: "wa3"
  std::string far_half() const;   // towards b
};

enum class DelayCarrier { kNone, kNetem, kForwarder };
const char* to_string(DelayCarrier carrier);  // "none", "netem", "forwarder"

// One direction of a cable.
struct DelayTraffic {
  std::string from, to;  // nodes
  std::uint64_t delay_ns = 0;
  std::uint64_t packets = 0;        // that went on
  std::uint64_t drops = 0;          // for want of room or of a way on
  std::uint64_t super_packets = 0;  // dropped, since no cable carries them
  std::uint64_t waiting_packets = 0;
};

struct DelayStatus {
  DelayCarrier carrier = DelayCarrier::kNone;
  int pid = 0;  // of the forwarder
  std::vector<DelayTraffic> directions;

  bool forwarder_is_missing() const { return carrier == DelayCarrier::kForwarder && pid == 0; }
};

// The cables with a delay of this topology.
std::vector<WireCable> wire_cables(const Topology& topology);

// For `ip -batch` in the wire namespace: the halves towards the first ends (those towards the second are there).
std::string wire_lines(const Topology& topology);
// For `tc -batch` there: tries netem out, and leaves nothing.
std::string netem_trial_lines();
// For `ip` and `tc` there: a bridge per cable, and netem on its halves.
std::string netem_bridge_lines(const std::vector<WireCable>& cables);
std::string netem_lines(const std::vector<WireCable>& cables);

// In the wire namespace: the cables as the kernel has them, and whether netem is on them.
struct WireThere {
  std::vector<WireCable> cables;
  bool netem = false;
  std::vector<DelayTraffic> netem_traffic;
};
Result<WireThere> read_wire();

}  // namespace clustar::bench::fabric
