// Which network interface carries the traffic to a peer, and whether it cuts packets itself.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::perf {

struct Interface {
  std::string name;  // "" when unknown
  int mtu = 0;
  bool loopback = false;
  bool known = false;  // tso, gso and gro were readable
  bool tso = false;
  bool gso = false;
  bool gro = false;
};

// The interface with this address (as text).
Interface interface_of(const std::string& address);

// "loopback", "segmented" (no TSO and no GSO: every packet is one of the wire), "offloads on", or "unknown".
std::string offload_mode(const Interface& interface);

// {name, mtu, offloads{tso, gso, gro} or null, mode}
nlohmann::json to_json(const Interface& interface);

}  // namespace clustar::bench::perf
