// What the arms of the kernel's TCP differ in: sysctls of a namespace, which sockets take when connections are made,
// and the congestion control of a socket.
#pragma once

#include <functional>
#include <string>

#include "bench/lossy/arm.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

// Writes one and reads it back; kUnavailable where the kernel has none of that name.
using SetSysctl = std::function<Result<void>(const std::string& name, const std::string& value)>;

// Before the arm's sockets are made; nothing for MLT. A kernel without net.ipv4.tcp_rto_min_us has the default that
// most arms want. kUnavailable: the kernel lacks what the arm asks for.
Result<void> set_kernel_tcp(const Arm& arm, const SetSysctl& set);
// When they are connected: the next user of the namespace finds the defaults.
Result<void> reset_kernel_tcp(const Arm& arm, const SetSysctl& set);

// kUnavailable: this kernel has no such congestion control.
Result<void> set_congestion(int socket, const std::string& name);

}  // namespace clustar::bench::lossy
