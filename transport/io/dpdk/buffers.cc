#include "transport/io/dpdk/buffers.h"

#include <fmt/format.h>
#include <rte_errno.h>

#include <atomic>

#include "transport/io/dpdk/eal.h"

namespace clustar::transport::io::dpdk {

Result<Pool> make_pool(std::uint32_t buffers, std::size_t frame, int numa_node) {
  static std::atomic<unsigned> number{0};
  const std::string name = fmt::format("clustar_{}", number++);
  const std::size_t room = (frame + RTE_PKTMBUF_HEADROOM + 63) / 64 * 64;
  // Threads of ours are none of DPDK's, for which alone a pool has caches.
  constexpr unsigned kNoCache = 0;
  Pool pool(rte_pktmbuf_pool_create(name.c_str(), buffers, kNoCache, 0, static_cast<std::uint16_t>(room), numa_node));
  if (pool) return pool;
  const int error = rte_errno;
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("DPDK has no room for {} packet buffers of {} bytes ({}; {}); raise CLUSTAR_DPDK_MEMORY_MB, or "
                  "lower CLUSTAR_DPDK_HELD or CLUSTAR_DPDK_DESCRIPTORS",
                  buffers, room, rte_strerror(error), take_complaints()));
}

}  // namespace clustar::transport::io::dpdk
