// Settings of RDMA NICs, for the transport verbs and for mlt over verbs. Part of the plugin, which knows them without
// the module. NCCL's variables count where ours are not set: docs/verbs.md has the differences.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct IbSettings {
  bool disable = false;             // no RDMA NIC is used, whatever there is
  std::string hca;                  // devices and ports, in the syntax of NCCL_IB_HCA; empty = all
  int gid_index = -1;               // -1 = chosen
  std::string addr_family = "any";  // of the chosen GID: any (IPv4 first) | ipv4 | ipv6
  int pkey_index = 0;               // in the port's table
  int traffic_class = -1;           // the IP header's byte (DSCP << 2); -1 = what the communicator says
  int service_level = -1;           // -1 = what the communicator says
  int timeout = 20;                 // a packet counts as lost after 4.096 us * 2^timeout
  int retry_count = 6;              // repetitions until a silent peer is an error; rdma_rxe takes 7 forever
  int queue_pairs = 2;              // per connection and port; one takes over when another fails
  std::uint32_t mtu = 0;            // bytes of payload in a packet; 0 = what the port has active
  // Largest message that may go ahead of its receive, and the least that is worth a queue pair of its own.
  std::uint32_t eager_bytes = 8 << 10;
  std::uint32_t stripe_bytes = 64 << 10;
  std::string relaxed_ordering = "auto";  // of PCI writes: auto (where it can be) | on | off
  // auto: on InfiniBand; where on, messages above the threshold are announced apart, since packets may be reordered.
  std::string adaptive_routing = "auto";
  std::uint32_t ar_threshold = 8 << 10;
  bool force_flush = false;  // ask NCCL to flush after every receive into GPU memory, whatever the GPU
  bool merge_nics = true;    // NCCL may fuse ports of one NIC into one device

  static const TypedTable<IbSettings>& table();
};

}  // namespace clustar
