#include "coflow/control/core/class_record.h"

namespace clustar::coflow::control {

std::atomic<std::uint64_t>& ClassRecord::queued_to(std::uint32_t peer) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const std::uint32_t used = peers_used.load(kRelaxed);
  for (std::uint32_t i = 0; i < used; ++i) {
    if (peers[i].number.load(kRelaxed) == peer) return peers[i].queued;
  }
  if (used == peers.size()) return peers.back().queued;
  peers[used].number.store(peer, kRelaxed);
  peers_used.store(used + 1, std::memory_order_release);
  return peers[used].queued;
}

}  // namespace clustar::coflow::control
