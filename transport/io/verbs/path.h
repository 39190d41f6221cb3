// The way to a peer's port, and the address handle that UD needs for it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "transport/base/result.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/handle.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {

struct Path {
  Gid peer{};
  std::uint8_t port = 1;           // ours
  int gid_index = -1;              // ours; -1: no global header, InfiniBand's own addresses (lid) within one subnet
  std::uint16_t lid = 0;           // the peer's, InfiniBand only
  std::uint8_t traffic_class = 0;  // the IP header's byte: DSCP << 2
  std::uint8_t service_level = 0;
  std::uint32_t flow_label = 0;  // with it NICs choose the UDP source port, and so switches the path; 0 = they choose
  std::uint8_t hop_limit = 64;

  ibv_ah_attr attributes() const;
};

class AddressHandle {
 public:
  // May block: on RoCE the kernel asks for the peer's Ethernet address, 1 s at most (then ETIMEDOUT).
  static Result<AddressHandle> make(const ProtectionDomain& domain, const Path& path);
  ibv_ah* get() const { return handle_.get(); }

 private:
  Handle<ibv_ah> handle_;
};

}  // namespace clustar::transport::io::verbs
