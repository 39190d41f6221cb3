#include "transport/message/ahead_meter.h"

#include <algorithm>

namespace clustar::transport {

std::uint64_t AheadMeter::bytes(TimePoint now) const {
  std::uint64_t sum = 0;
  for (const ConnectionId id : here_) {
    if (!stuck(connections_[id], now)) sum += connections_[id].bytes;
  }
  return sum;
}

void AheadMeter::add(ConnectionId id, std::uint64_t bytes, TimePoint now) {
  set(id, (id < connections_.size() ? connections_[id].bytes : 0) + bytes, now);
}

void AheadMeter::set(ConnectionId id, std::uint64_t bytes, TimePoint now) {
  if (id >= connections_.size()) connections_.resize(id + 1);
  Connection& connection = connections_[id];
  connection.stuck = stuck(connection, now);
  if (bytes == connection.bytes) return;
  if (connection.bytes == 0) here_.push_back(id);
  if (bytes == 0) std::erase(here_, id);
  // What is handed on shows nothing: it does not make who is stuck move.
  const std::uint64_t left = connection.bytes - std::min(connection.bytes, bytes);
  departed_ += left;
  line_watched_ -= std::min(line_watched_, left);
  if (line_watched_ == 0) {
    line_watched_ = kStep;
    line_since_ = now;
  }
  here_bytes_ += bytes;
  here_bytes_ -= connection.bytes;
  connection.watched -= std::min(connection.watched, left);
  connection.bytes = bytes;
  if (connection.watched > 0) return;
  connection.watched = std::min(bytes, kStep);
  connection.since = now;
  connection.stuck = false;
  if (bounded()) connection.enough = departed_ + kTurns * std::max(here_bytes_, most_);
}

void AheadMeter::forget(ConnectionId id) {
  if (id >= connections_.size()) return;
  here_bytes_ -= connections_[id].bytes;
  std::erase(here_, id);
  connections_[id] = {};
}

}  // namespace clustar::transport
