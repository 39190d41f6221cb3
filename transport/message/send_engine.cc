#include "transport/message/send_engine.h"

namespace clustar::transport {

SendQueue::LaneId SendEngine::attach(ChunkWire& wire, const SendQueue::LaneFacts& facts) {
  const std::lock_guard lock(mutex_);
  const SendQueue::LaneId lane = queue_.add_lane(facts);
  if (lane >= wires_.size()) wires_.resize(lane + 1);
  wires_[lane] = &wire;
  return lane;
}

void SendEngine::detach(SendQueue::LaneId lane) {
  const std::lock_guard lock(mutex_);
  queue_.remove_lane(lane, now());
  wires_[lane] = nullptr;
  ahead_.forget(lane);
}

// What was handed on before has left meanwhile, or not.
bool SendEngine::has_room(TimePoint at) {
  if (!ahead_.bounded()) return true;
  for (std::size_t i = ahead_.lanes().size(); i-- > 0;) {
    const SendQueue::LaneId lane = ahead_.lanes()[i];
    ahead_.set(lane, wires_[lane]->ahead_bytes(), at);
  }
  return ahead_.room(at);
}

void SendEngine::pump() {
  const TimePoint at = now();
  std::uint64_t moved = 0;
  bool room = has_room(at);
  while (room && moved < pump_bytes_) {
    auto chunk = queue_.next(std::numeric_limits<std::uint64_t>::max(), at);
    if (!chunk) break;
    ChunkWire* const wire = wires_[chunk->lane];
    chunk->shorten(wire->chunk_limit(chunk->cookie));
    if (!wire->start_chunk(*chunk)) {
      queue_.block(chunk->lane);
      continue;
    }
    queue_.commit(*chunk, at);
    if (ahead_.bounded()) {
      ahead_.add(chunk->lane, chunk->length, at);
      room = ahead_.room(at);
    }
    moved += chunk->length;
    if (touched_.empty() || touched_.back() != wire) touched_.push_back(wire);
  }
  for (ChunkWire* wire : touched_) wire->end_of_pump();
  touched_.clear();
}

}  // namespace clustar::transport
