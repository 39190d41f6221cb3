// Pairs of ports that a wire joins, in this process: no NIC, and no other host.
#pragma once

#include <string>

#include "transport/base/result.h"

namespace clustar::bench::dpdk {

// Devices of DPDK with their addresses, as CLUSTAR_DPDK_DEVICES has them. `to` is to be opened first: of memif it is
// the server.
struct PortPair {
  std::string from;
  std::string to;
};

struct Wires {
  PortPair bare;
  PortPair mlt;
};

// `kind`: "memif" (shared memory), or "veth" or "xdp" (net_af_packet or net_af_xdp on virtual interfaces, in a network
// namespace that this process enters: call it before there is another thread). Errors: no such kind; no right to a
// namespace.
Result<Wires> make_wires(const std::string& kind);

}  // namespace clustar::bench::dpdk
