// Reads a fabric out of the kernel: what there is, what is missing, what passed. Changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct Traffic {
  std::uint64_t packets = 0, bytes = 0, drops = 0;  // frames without FCS; drops did not count as passed
  std::uint64_t waiting_bytes = 0;
};

struct PortStatus {
  int host = 0;
  std::string host_namespace;
  std::string address;
  int mtu = 0;
  std::uint64_t rate_bps = 0, buffer_bytes = 0;  // of the switch port, towards the host
  std::uint64_t host_rate_bps = 0;               // of the host's own line
  Traffic to_host;
  Traffic from_host;  // its drops and what waits are those of the host's own queue
};

struct FabricStatus {
  FabricSpec spec;  // as the kernel has it (of host 0's port), not as it was asked for
  std::vector<PortStatus> ports;
  // What is missing or differs from port to port, one sentence each. Empty: whole.
  std::vector<std::string> problems;

  bool exists = false;  // anything of that name, half-made or whole
};

// Needs root. `exists` is false when there is nothing of that name.
Result<FabricStatus> inspect(const std::string& fabric);

}  // namespace clustar::bench::fabric
