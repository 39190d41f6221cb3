// What this process may do of what DPDK's virtual devices need. Tried out, not read off capability bits: in a user
// namespace a process has all of them, and the kernel asks for some in the first one only.
#pragma once

#include <cstddef>

namespace clustar::bench::doctor {

struct DpdkRights {
  bool packets = false;   // open packet sockets (CAP_NET_RAW)
  bool admin = false;     // set up interfaces (CAP_NET_ADMIN)
  bool load_xdp = false;  // load XDP programs (CAP_BPF)
  bool lock = false;      // lock the packet memory of a net_af_xdp port (CAP_IPC_LOCK, or ulimit -l)
};

// `memory`: bytes of that port's packets.
DpdkRights dpdk_rights_here(std::size_t memory);

}  // namespace clustar::bench::doctor
