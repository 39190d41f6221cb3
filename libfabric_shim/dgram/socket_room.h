// Room in the sockets of libfabric's udp, which leaves them as the kernel makes them: 92 datagrams of 1,472 bytes,
// where a burst of MLT's is longer. libfabric has no call for it.
#pragma once

#include <cstddef>

namespace clustar::transport::ofi {

// Of the datagram sockets that the queue with this wait descriptor, an epoll, looks at: gives each `bytes`, or as many
// as the system allows, to receive and to send. How much the least of them has for what it receives, as the kernel
// counts; 0: none was found.
std::size_t widen_sockets(int wait_descriptor, std::size_t bytes);

}  // namespace clustar::transport::ofi
