#include "bench/lossy/kernel_tcp.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace clustar::bench::lossy {

Result<void> set_kernel_tcp(const Arm& arm, const SetSysctl& set) {
  if (!is_kernel_tcp(arm)) return {};
  if (auto done = set("net.ipv4.tcp_ecn", arm.ecn ? "1" : "2"); !done) return done;
  auto done = set("net.ipv4.tcp_rto_min_us", std::to_string(arm.rto_min_us));
  if (done || done.error().code != ErrorCode::kUnavailable) return done;
  if (arm.rto_min_us == kDefaultRtoUs) return {};
  return fail(ErrorCode::kUnavailable,
              fmt::format("a minimum RTO of {} us needs Linux 6.11: {}", arm.rto_min_us, done.error().message));
}

Result<void> reset_kernel_tcp(const Arm& arm, const SetSysctl& set) {
  Arm defaults = arm;
  defaults.ecn = false;
  defaults.rto_min_us = kDefaultRtoUs;
  return set_kernel_tcp(defaults, set);
}

Result<void> set_congestion(int socket, const std::string& name) {
  if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0) return {};
  const int error = errno;
  return fail(error == ENOENT ? ErrorCode::kUnavailable : ErrorCode::kSystem,
              fmt::format("TCP_CONGESTION={0}: {1} (modprobe tcp_{0})", name, std::strerror(error)));
}

}  // namespace clustar::bench::lossy
