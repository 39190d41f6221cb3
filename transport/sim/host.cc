#include "transport/sim/host.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace clustar::transport::sim {
Host::Host(Simulation& simulation, HostId id, const HostOptions& options)
    : simulation_(simulation), id_(id), options_(options), wake_(simulation.events(), *this, kWake) {}

void Host::connect(const LinkOptions& link, EventTarget& peer) {
  assert(nic_ == nullptr);
  nic_ = std::make_unique<Port>(simulation_, link, node(), peer);
}

void Host::attach(Endpoint* endpoint) {
  endpoint_ = endpoint;
  wake_.arm(kNever);
  wake_missed_ = false;
  room_missed_ = false;
}

std::uint32_t Host::room() const {
  const std::uint64_t queued = nic_->queued_packets();
  return queued >= options_.tx_queue_packets ? 0 : options_.tx_queue_packets - static_cast<std::uint32_t>(queued);
}

bool Host::send(const SimPacket& packet) {
  if (room() == 0) {
    ++counters_.refused_packets;
    nic_->ask_for_room();
    return false;
  }
  PacketPool& pool = simulation_.packets();
  const PacketId id = pool.take();
  PacketPool::Slot& slot = pool[id];
  slot.packet = packet;
  slot.packet.source = id_;
  slot.packet.sent = simulation_.now();
  slot.wire_bytes =
      static_cast<std::uint32_t>(packet.header.bytes().size()) + packet.payload_bytes + simulation_.overhead_bytes();
  ++counters_.sent_packets;
  counters_.sent_bytes += slot.wire_bytes;
  nic_->enqueue(id);
  return true;
}

void Host::freeze(TimePoint from, TimePoint until) {
  if (until <= from || until <= simulation_.now()) return;
  holds_.push_back(until);
  simulation_.events().push(from, *this, kFreeze, static_cast<std::uint32_t>(holds_.size() - 1));
}

void Host::on_event(std::uint32_t kind, std::uint32_t argument) {
  switch (kind) {
    case kArrival: return arrive(argument);
    case kRoom:
      if (frozen_ > 0) {
        room_missed_ = true;
      } else if (endpoint_ != nullptr) {
        endpoint_->on_room(simulation_.now());
      }
      return;
    case kWake:
      if (!wake_.due(argument)) return;
      if (frozen_ > 0) {
        wake_missed_ = true;
      } else {
        wake();
      }
      return;
    case kFreeze:
      ++frozen_;
      nic_->hold(holds_[argument]);
      simulation_.events().push(holds_[argument], *this, kThaw, 0);
      return;
    case kThaw: return thaw();
  }
}

void Host::prepare(std::uint32_t kind, std::uint32_t argument) const {
  prefetch(endpoint_, 128);
  if (kind == kArrival) simulation_.packets().prepare(argument, sizeof(PacketPool::Slot));
}

void Host::arrive(PacketId id) {
  if (frozen_ == 0) return deliver(id);
  if (backlog_.size() >= options_.frozen_backlog_packets) return drop(id, DropCause::kFrozen);
  backlog_.push_back(id);
}

void Host::deliver(PacketId id) {
  PacketPool::Slot& slot = simulation_.packets()[id];
  SimPacket& packet = slot.packet;
  if (endpoint_ == nullptr || packet.destination != id_) return drop(id, DropCause::kNoEndpoint);
  ++counters_.received_packets;
  counters_.received_bytes += slot.wire_bytes;
  Digest& digest = simulation_.digest();
  digest.add(static_cast<std::uint64_t>(simulation_.now().time_since_epoch().count()));
  digest.add(std::uint64_t{packet.source} << 32 | id_);
  digest.add(std::uint64_t{packet.payload_bytes} << 32 | std::uint64_t{packet.path} << 16 |
             std::uint64_t{packet.traffic_class} << 8 | static_cast<std::uint64_t>(packet.ecn) << 1 |
             std::uint64_t{packet.trimmed});
  digest.add(packet.payload_tag);
  digest.add(packet.header.bytes());
  if (!packet.payload.empty()) digest.add(packet.payload);
  endpoint_->on_packet(packet, simulation_.now());
  simulation_.packets().give_back(id);
}

void Host::wake() {
  if (endpoint_ == nullptr) return;
  const TimePoint now = simulation_.now();
  const TimePoint next = endpoint_->on_wake(now);
  wake_.arm(std::max(next, now + Duration(1)));
}

void Host::thaw() {
  if (--frozen_ > 0) return;
  // An endpoint cannot freeze its host within an event, so the backlog empties.
  while (!backlog_.empty()) deliver(backlog_.pop_front());
  if (room_missed_ && endpoint_ != nullptr) endpoint_->on_room(simulation_.now());
  room_missed_ = false;
  if (!wake_missed_) return;
  wake_missed_ = false;
  wake();
}

void Host::drop(PacketId id, DropCause cause) {
  counters_.drops.count(cause);
  simulation_.packets().give_back(id);
}

}  // namespace clustar::transport::sim
