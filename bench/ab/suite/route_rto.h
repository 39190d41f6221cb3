// The minimum RTO as an attribute of routes, for kernels before 6.11, which have no net.ipv4.tcp_rto_min_us.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::ab::suite {

bool kernel_has_rto_sysctl();

// Lines for `ip -batch` that give each of the routes that `ip route show` wrote this minimum RTO, in whole ms, rounded
// up; 0: the kernel's own.
std::string route_changes(const std::string& shown, std::uint32_t rto_min_us);
// Does it in the namespace, for connections made from now on. Errors: as lossy::run_tool().
Result<void> set_route_rto(const std::string& in_namespace, std::uint32_t rto_min_us);

}  // namespace clustar::bench::ab::suite
