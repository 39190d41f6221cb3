#include "transport/io/dpdk/buffers.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mbuf_pool_ops.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "transport/io/dpdk/eal.h"

namespace clustar::transport::io::dpdk {

namespace {

// Threads of ours are none of DPDK's, for which alone a pool has caches.
constexpr unsigned kNoCache = 0;

// The buffer that was given back last is taken first, while caches and the TLB know it. DPDK's own order, a ring, goes
// round through all of a pool's memory, which no cache holds. It is a driver of DPDK's, which a system may lack.
constexpr const char* kLastFirst = "stack";

std::string next_name() {
  static std::atomic<unsigned> number{0};
  return fmt::format("clustar_{}", number++);
}

tl::unexpected<Error> no_room(std::uint32_t buffers, std::size_t room, int error) {
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("DPDK has no room for {} packet buffers of {} bytes ({}; {}); raise CLUSTAR_DPDK_MEMORY_MB, or "
                  "lower CLUSTAR_DPDK_HELD or CLUSTAR_DPDK_DESCRIPTORS",
                  buffers, room, rte_strerror(error), take_complaints()));
}

}  // namespace

Result<Pool> make_pool(std::uint32_t buffers, std::size_t frame, int numa_node) {
  const auto room = static_cast<std::uint16_t>((frame + RTE_PKTMBUF_HEADROOM + 63) / 64 * 64);
  for (const char* const order : {kLastFirst, rte_mbuf_best_mempool_ops()}) {
    Pool pool(rte_pktmbuf_pool_create_by_ops(next_name().c_str(), buffers, kNoCache, 0, room, numa_node, order));
    if (pool) return pool;
  }
  return no_room(buffers, room, rte_errno);
}

Result<Pool> make_pool_of_pages(std::uint32_t buffers, std::size_t frame, int numa_node) {
  // Without it DPDK would make them longer, so that they begin in different channels of the memory.
  constexpr unsigned kAsTheyAre = RTE_MEMPOOL_F_NO_SPREAD;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  rte_mempool_objsz around{};
  rte_mempool_calc_obj_size(sizeof(rte_mbuf), kAsTheyAre, &around);
  const std::size_t room = page - around.total_size;
  if (frame + RTE_PKTMBUF_HEADROOM > room) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("frames of {} bytes do not fit into pages of {}; this device takes frames of up to {}",
                            frame, page, room - RTE_PKTMBUF_HEADROOM));
  }
  Pool pool(rte_mempool_create_empty(next_name().c_str(), buffers, static_cast<unsigned>(sizeof(rte_mbuf) + room),
                                     kNoCache, sizeof(rte_pktmbuf_pool_private), numa_node, kAsTheyAre));
  if (!pool) return no_room(buffers, page, rte_errno);
  if (rte_mempool_set_ops_byname(pool.get(), kLastFirst, nullptr) != 0) {
    const int code = rte_mempool_set_ops_byname(pool.get(), rte_mbuf_best_mempool_ops(), nullptr);
    if (code != 0) return no_room(buffers, page, -code);
  }
  rte_pktmbuf_pool_private sizes{};
  sizes.mbuf_data_room_size = static_cast<std::uint16_t>(room);
  rte_pktmbuf_pool_init(pool.get(), &sizes);
  if (const int code = rte_mempool_populate_default(pool.get()); code < 0) return no_room(buffers, page, -code);
  rte_mempool_obj_iter(pool.get(), rte_pktmbuf_init, nullptr);
  return pool;
}

}  // namespace clustar::transport::io::dpdk
