// Payload that the device places: which memory is open to it, and until when.
#include <algorithm>

#include "mlt/driver/engine.h"

namespace clustar::mlt::driver {

io::Landing Engine::expect(ConnectionId id, std::uint64_t slot, const io::MemorySlice& target) {
  if (!places() || target.mr == nullptr || target.length < kLeastLanding) return {};
  const io::Landing landing = device_.io->expect(attached_[id].peer_id, slot, target, options_.segment);
  if (landing.id != 0) attached_[id].landings.push_back(landing);
  return landing;
}

void Engine::cancel(ConnectionId id, io::Landing landing) {
  if (landing.id == 0) return;
  device_.io->cancel(landing);
  std::erase_if(attached_[id].landings, [&](const io::Landing& each) { return each.id == landing.id; });
}

}  // namespace clustar::mlt::driver
