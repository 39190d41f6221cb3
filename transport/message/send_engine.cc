#include "transport/message/send_engine.h"

namespace clustar::transport {

SendQueue::ConnectionId SendEngine::attach(ChunkWire& wire, const SendQueue::ConnectionFacts& facts) {
  const std::lock_guard lock(mutex_);
  const SendQueue::ConnectionId connection = queue_.add_connection(facts);
  if (connection >= wires_.size()) wires_.resize(connection + 1);
  wires_[connection] = &wire;
  return connection;
}

void SendEngine::detach(SendQueue::ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  queue_.remove_connection(connection, now());
  wires_[connection] = nullptr;
  ahead_.forget(connection);
}

// What was handed on before has left meanwhile, or not; a wire that was stuck and passed over may go on.
bool SendEngine::has_room(TimePoint at) {
  if (!ahead_.bounded()) return true;
  for (std::size_t i = ahead_.connections().size(); i-- > 0;) {
    const SendQueue::ConnectionId connection = ahead_.connections()[i];
    const bool was_stuck = ahead_.stuck(connection, at);
    ahead_.set(connection, wires_[connection]->ahead_bytes(), at);
    if (was_stuck && !ahead_.stuck(connection, at)) queue_.unblock(connection);
  }
  set_more(at);
  return ahead_.room(at, more_);
}

void SendEngine::set_more(TimePoint at) {
  const SendPolicy::RunAhead how = queue_.run_ahead(at);
  more_ = longer_ = 0;
  limit_ = nullptr;
  if (how != SendPolicy::RunAhead::kFill) fill_.rest(at);
  if (how != SendPolicy::RunAhead::kFree) free_.rest(at);
  if (how == SendPolicy::RunAhead::kNo) return;
  limit_ = how == SendPolicy::RunAhead::kFill ? &fill_ : &free_;
  // What a stuck connection has keeps nobody from the line, but it has not left.
  limit_->look(ahead_.bytes_with_stuck(), at);
  more_ = limit_->bytes() - (limit_ == &free_ ? chunk_ : fill_.least());
  if (limit_ == &free_) longer_ = more_;
}

void SendEngine::pump() {
  const TimePoint at = now();
  std::uint64_t moved = 0;
  bool room = has_room(at);
  while (room && moved < pump_bytes_) {
    auto chunk = queue_.next(std::numeric_limits<std::uint64_t>::max(), at);
    if (!chunk) break;
    if (ahead_.stuck(chunk->connection, at)) {
      queue_.block(chunk->connection);
      continue;
    }
    ChunkWire* const wire = wires_[chunk->connection];
    chunk->shorten(wire->chunk_limit(chunk->cookie));
    if (!wire->start_chunk(*chunk)) {
      queue_.block(chunk->connection);
      continue;
    }
    queue_.commit(*chunk, at);
    if (ahead_.bounded()) {
      ahead_.add(chunk->connection, chunk->length, at);
      room = ahead_.room(at, more_);
    }
    moved += chunk->length;
    if (touched_.empty() || touched_.back() != wire) touched_.push_back(wire);
  }
  if (!room && limit_ != nullptr && queue_.size() > 0) limit_->hold();
  for (ChunkWire* wire : touched_) wire->end_of_pump();
  touched_.clear();
}

}  // namespace clustar::transport
