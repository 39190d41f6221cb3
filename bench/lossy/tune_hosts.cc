#include "bench/lossy/tune_hosts.h"

#include <utility>

#include "bench/lossy/tool.h"

namespace clustar::bench::lossy {

Result<void> tune_tcp(const fabric::Fabric& fabric) {
  for (int host = 0; host < fabric.hosts(); ++host) {
    for (const auto& [name, value] :
         {std::pair("net.ipv4.tcp_slow_start_after_idle", "0"), std::pair("net.ipv4.tcp_no_metrics_save", "1"),
          std::pair("net.ipv4.tcp_rmem", "4096 1048576 33554432"),
          std::pair("net.ipv4.tcp_wmem", "4096 1048576 33554432")}) {
      if (const auto set = set_sysctl(fabric.namespace_of(host), name, value); !set) return set;
    }
  }
  return {};
}

}  // namespace clustar::bench::lossy
