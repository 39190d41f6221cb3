// Equal terms for every arm: the clustar executable exports `socket`, which therefore comes before libc's for every
// library that is loaded later, and sets TCP_CONGESTION on each TCP socket when told to. An accepted socket inherits it
// from its listener. A plugin that makes its sockets without libc's socket() (io_uring, a static libc, a kernel bypass)
// escapes it, so what a worker reports is what congestion_controls() reads back, never what was asked for.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::perf {

// From now on each new TCP socket of this process, by any library, uses `name`; "" ends that. Error: the kernel refuses
// it here, with what it offers. Call before other threads make sockets.
Result<void> set_congestion_control(const std::string& name);

// Of the kernel in this network namespace.
std::string default_congestion_control();

struct TcpSockets {
  int count = 0;
  std::vector<std::string> controls;  // distinct, sorted
};
// The TCP sockets that this process holds, but `skip`, as the kernel sees them.
TcpSockets tcp_sockets(int skip);

}  // namespace clustar::bench::perf
