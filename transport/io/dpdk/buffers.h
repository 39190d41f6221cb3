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
// A frame. What comes is in one segment, as we ask for it; a driver that cuts it is refused by frame_of(). What is sent
// may have its payload in a second one.
using Buffer = std::unique_ptr<rte_mbuf, FreeBuffer>;

// Its bytes; empty if they do not lie together.
inline std::span<std::byte> frame_of(rte_mbuf& buffer) {
  if (buffer.nb_segs != 1) return {};
  return {rte_pktmbuf_mtod(&buffer, std::byte*), buffer.data_len};
}

// Of a frame whose payload may lie elsewhere: what is in front, and the rest.
inline std::span<std::byte> head_of(rte_mbuf& buffer) {
  return {rte_pktmbuf_mtod(&buffer, std::byte*), buffer.data_len};
}
inline std::span<const std::byte> rest_of(rte_mbuf& buffer) {
  if (buffer.next == nullptr) return {};
  return {rte_pktmbuf_mtod(buffer.next, const std::byte*), buffer.next->data_len};
}

struct FreePool {
  void operator()(rte_mempool* pool) const { rte_mempool_free(pool); }
};
using Pool = std::unique_ptr<rte_mempool, FreePool>;

// `frame`: the longest that a buffer takes. Error: not so much memory.
Result<Pool> make_pool(std::uint32_t buffers, std::size_t frame, int numa_node);
// The same, of a page each, without gaps between them: net_af_xdp tells the kernel of so many bytes as the buffers
// have, and in other pools, where none may cross a page, the last ones lie behind these: the kernel drops what they
// hold. Error, too: a frame that fits no page.
Result<Pool> make_pool_of_pages(std::uint32_t buffers, std::size_t frame, int numa_node);

}  // namespace clustar::transport::io::dpdk
