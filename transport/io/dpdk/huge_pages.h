// The huge pages of this machine. Needs no DPDK.
#pragma once

#include <cstdint>
#include <string>

namespace clustar::transport::io::dpdk {

// Free ones, MiB, of any size. `sysfs`: /sys, or a fixture of it.
std::uint64_t free_huge_pages_mb(const std::string& sysfs = "/sys");

}  // namespace clustar::transport::io::dpdk
