#include "transport/io/dpdk/borrowed.h"

#include <algorithm>

namespace clustar::transport::io::dpdk {

void Borrowed::gone(void*, void* place) { static_cast<Place*>(place)->taken.store(false, std::memory_order_release); }

bool Borrowed::attach(rte_mbuf& frame, std::span<const std::byte> payload) {
  rte_mbuf* const rest = rte_pktmbuf_alloc(frames_.get());
  if (rest == nullptr) return false;
  Place& place = places_[next_];
  place.shared.free_cb = gone;
  place.shared.fcb_opaque = &place;
  rte_mbuf_ext_refcnt_set(&place.shared, 1);
  place.taken.store(true, std::memory_order_relaxed);
  // DPDK has no word for memory that is only read.
  auto* const memory = const_cast<std::byte*>(payload.data());
  const auto length = static_cast<std::uint16_t>(payload.size());
  rte_pktmbuf_attach_extbuf(rest, memory, RTE_BAD_IOVA, length, &place.shared);
  rest->data_off = 0;
  rest->data_len = length;
  rest->pkt_len = length;
  rte_pktmbuf_chain(&frame, rest);
  return true;
}

bool Borrowed::any() const {
  return std::any_of(places_.get(), places_.get() + count_,
                     [](const Place& place) { return place.taken.load(std::memory_order_acquire); });
}

}  // namespace clustar::transport::io::dpdk
