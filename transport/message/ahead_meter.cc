#include "transport/message/ahead_meter.h"

namespace clustar::transport {

bool AheadMeter::room(TimePoint now) const {
  if (!bounded()) return true;
  std::uint64_t sum = 0;
  for (const LaneId id : here_) {
    if (now - lanes_[id].moved_at <= kPatience) sum += lanes_[id].bytes;
  }
  return sum < most_;
}

void AheadMeter::add(LaneId id, std::uint64_t bytes, TimePoint now) {
  set(id, (id < lanes_.size() ? lanes_[id].bytes : 0) + bytes, now);
}

void AheadMeter::set(LaneId id, std::uint64_t bytes, TimePoint now) {
  if (id >= lanes_.size()) lanes_.resize(id + 1);
  Lane& lane = lanes_[id];
  if (bytes == lane.bytes) return;
  if (lane.bytes == 0) here_.push_back(id);
  if (bytes == 0) std::erase(here_, id);
  lane = {bytes, now};
}

}  // namespace clustar::transport
