#include "mlt/driver/engine_counters.h"

#include "mlt/driver/engine.h"

namespace clustar::mlt::driver {

EngineCounters& EngineCounters::operator+=(const EngineCounters& other) {
  missing_packets += other.missing_packets;
  eligible_bytes += other.eligible_bytes;
  charged += other.charged;
  refused += other.refused;
  packets_sent += other.packets_sent;
  packets_received += other.packets_received;
  marked += other.marked;
  retransmissions += other.retransmissions;
  parity += other.parity;
  rebuilt += other.rebuilt;
  strangers += other.strangers;
  unauthenticated += other.unauthenticated;
  replayed += other.replayed;
  queued_bytes += other.queued_bytes;
  return *this;
}

void Engine::count_stranger() {
  const std::lock_guard lock(mutex_);
  ++counters_.strangers;
}

Engine::Counters Engine::counters() {
  const std::lock_guard lock(mutex_);
  Counters sum = counters_;
  for (ConnectionId id = 0; id < attached_.size(); ++id) {
    if (attached_[id].client == nullptr) continue;
    if (attached_[id].end == End::kReceives) {
      sum.rebuilt += core_.receiver(id).counters().rebuilt;
      continue;
    }
    sum.parity += core_.sender(id).counters().parity;
    sum.retransmissions += core_.sender(id).counters().retransmitted;
    sum.queued_bytes += core_.sender(id).unsent_bytes();
  }
  const LossCounters& losses = core_.ledgers().totals();
  sum.eligible_bytes = losses.eligible_bytes;
  sum.charged = losses.charged;
  sum.refused = losses.refused;
  sum.strangers += core_.counters().strangers + core_.counters().malformed;
  if (sealing_) {
    sum.unauthenticated += sealing_->counters().unauthenticated;
    sum.replayed += sealing_->counters().replayed;
  }
  return sum;
}

std::string Engine::describe_device() {
  const std::lock_guard lock(mutex_);
  return device_->describe();
}

}  // namespace clustar::mlt::driver
