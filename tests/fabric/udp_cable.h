// A cable between two hosts: two network namespaces without names, which end with this object, joined by a veth pair.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::tests {

// What the kernel makes of a message of many segments between the two sockets.
enum class Carriage {
  kWhole,     // veth carries it in one piece, as loopback does
  kRejoined,  // cut in front of the sender's veth, joined again behind the receiver's (GRO), as between NICs
  kPackets,   // cut, and never joined: `clustar fabric`
};
const char* to_string(Carriage carriage);

class Wire {
 public:
  // kUnavailable without root, iproute2 or what the kernel needs for it.
  static Result<Wire> make(int mtu, Carriage carriage);
  // On a thread that stands on the host (0 or 1) for as long; sockets that it opens stay there.
  void run_on(int host, const std::function<void()>& body) const;
  static const char* address(int host) { return host == 0 ? "10.78.0.1" : "10.78.0.2"; }
  static const char* address6(int host) { return host == 0 ? "fd78::1" : "fd78::2"; }  // where the kernel has IPv6

 private:
  FileDescriptor hosts_[2];
};

}  // namespace clustar::tests
