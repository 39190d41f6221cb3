#include "bench/dpdk/ports.h"

#include <fmt/format.h>
#include <rte_ethdev.h>

#include <chrono>
#include <thread>

#include "transport/io/dpdk/core/device_spec.h"

namespace clustar::bench::dpdk {

Result<std::uint16_t> port_of(const std::string& device) {
  const auto specs = transport::io::dpdk::parse_devices(device);
  if (!specs) return tl::unexpected(specs.error());
  std::uint16_t port = 0;
  if (rte_eth_dev_get_port_by_name(specs->front().name.c_str(), &port) == 0) return port;
  return fail(ErrorCode::kUnavailable, fmt::format("{} is no open port", specs->front().name));
}

Result<void> wait_for_link(std::uint16_t port) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  rte_eth_link link{};
  while (rte_eth_link_get_nowait(port, &link) != 0 || link.link_status == RTE_ETH_LINK_DOWN) {
    if (std::chrono::steady_clock::now() > end) {
      return fail(ErrorCode::kUnavailable, "the two ports of a wire have no link after 5 s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

std::uint64_t received_by(std::uint16_t port) {
  rte_eth_stats stats{};
  return rte_eth_stats_get(port, &stats) == 0 ? stats.ipackets : 0;
}

}  // namespace clustar::bench::dpdk
