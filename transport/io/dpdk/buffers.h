// Packet buffers of DPDK (mbufs), owned.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/result.h"

namespace clustar::transport::io::dpdk {

struct FreeBuffer {
  void operator()(rte_mbuf* buffer) const { rte_pktmbuf_free(buffer); }
};
// A frame: in one segment, as we ask for it; a driver that cuts it is refused by frame_of().
using Buffer = std::unique_ptr<rte_mbuf, FreeBuffer>;

// Its bytes; empty if they do not lie together.
inline std::span<std::byte> frame_of(rte_mbuf& buffer) {
  if (buffer.nb_segs != 1) return {};
  return {rte_pktmbuf_mtod(&buffer, std::byte*), buffer.data_len};
}

struct FreePool {
  void operator()(rte_mempool* pool) const { rte_mempool_free(pool); }
};
using Pool = std::unique_ptr<rte_mempool, FreePool>;

// `frame`: the longest that a buffer takes. Error: not so much memory.
Result<Pool> make_pool(std::uint32_t buffers, std::size_t frame, int numa_node);

}  // namespace clustar::transport::io::dpdk
