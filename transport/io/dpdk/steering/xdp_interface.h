// An interface that a port of net_af_xdp takes packets from. DPDK takes away whatever XDP program is there when a port
// closes, or fails to open, whosever it is; so a port asks here first.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::transport::io::dpdk {

class XdpInterface {
 public:
  XdpInterface() = default;
  // For one port of this network namespace at a time, until the object or its process ends. A steering program that a
  // killed process left is removed. `steered`: of a port that brings its own. Errors kUnavailable, with what to do:
  // another port has it; it has another tool's program; it spreads packets over more receive queues than the port's
  // `queues`.
  static Result<XdpInterface> take(const std::string& interface, bool steered, std::uint32_t queues);

  // From now on DPDK has a queue of it, which it gives back when the process ends, and not before: a later take() of
  // this process fails.
  void keep() const;

 private:
  int index_ = 0;  // 0: there is no such interface
  FileDescriptor lock_{};
};

}  // namespace clustar::transport::io::dpdk
