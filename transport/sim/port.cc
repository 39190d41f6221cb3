#include "transport/sim/port.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace clustar::transport::sim {

Port::Port(Simulation& simulation, const LinkOptions& options, EventTarget& owner, EventTarget& peer,
           std::uint64_t* shared_bytes)
    : simulation_(simulation),
      owner_(owner),
      peer_(peer),
      shared_bytes_(shared_bytes),
      options_(options),
      faults_(simulation.seed(), simulation.next_port_id()) {
  assert(options.rate_bps > 0 && options.rate_bps <= 10'000'000'000'000);
}

void Port::enqueue(PacketId id) {
  const bool idle = !scheduled_ && simulation_.now() >= busy_until_;
  if (idle) return transmit(id);
  push(id);
  if (scheduled_) return;
  scheduled_ = true;
  simulation_.events().push(busy_until_, *this, 0, 0);
}

void Port::hold(TimePoint until) {
  if (until <= busy_until_) return;
  busy_until_ = until;  // an event pending for the earlier time finds this and waits on
  remainder_ = 0;
}

void Port::on_event(std::uint32_t, std::uint32_t) {
  if (simulation_.now() < busy_until_) return simulation_.events().push(busy_until_, *this, 0, 0);
  transmit(pop());
  scheduled_ = occupied_ != 0;
  if (scheduled_) simulation_.events().push(busy_until_, *this, 0, 0);
}

void Port::push(PacketId id) {
  PacketPool::Slot& slot = simulation_.packets()[id];
  const std::size_t traffic_class = slot.packet.traffic_class & (kClasses - 1);
  Queue& queue = queues_[traffic_class];
  slot.next = kNoPacket;
  if (queue.head == kNoPacket) {
    queue.head = id;
    occupied_ |= 1u << traffic_class;
  } else {
    simulation_.packets()[queue.tail].next = id;
  }
  queue.tail = id;
  queue.bytes += slot.wire_bytes;
  queued_bytes_ += slot.wire_bytes;
  ++queued_packets_;
  if (shared_bytes_ != nullptr) *shared_bytes_ += slot.wire_bytes;
  counters_.max_queue_bytes = std::max(counters_.max_queue_bytes, queued_bytes_);
}

PacketId Port::pop() {
  const auto traffic_class = static_cast<std::size_t>(std::bit_width(occupied_) - 1);
  Queue& queue = queues_[traffic_class];
  const PacketId id = queue.head;
  const PacketPool::Slot& slot = simulation_.packets()[id];
  queue.head = slot.next;
  if (queue.head == kNoPacket) occupied_ &= ~(1u << traffic_class);
  queue.bytes -= slot.wire_bytes;
  queued_bytes_ -= slot.wire_bytes;
  --queued_packets_;
  if (shared_bytes_ != nullptr) *shared_bytes_ -= slot.wire_bytes;
  if (room_wanted_) {
    room_wanted_ = false;
    simulation_.events().push(simulation_.now(), owner_, kRoom, 0);
  }
  return id;
}

void Port::transmit(PacketId id) {
  const std::uint32_t bytes = simulation_.packets()[id].wire_bytes;
  const TimePoint now = simulation_.now();
  if (now > busy_until_) remainder_ = 0;
  // At most 2^32 bytes * 8 * 10^9 + 10^13, which needs more than 64 bits; packets below 2 GB do not.
  const std::uint64_t work = std::uint64_t{bytes} * 8'000'000'000 + remainder_;
  busy_until_ = now + Duration(work / options_.rate_bps);
  remainder_ = work % options_.rate_bps;
  ++counters_.packets;
  counters_.bytes += bytes;
  const TimePoint arrival = busy_until_ + options_.delay;
  if (!faults_.empty()) return transmit_faulty(id, arrival);
  simulation_.events().push(arrival, peer_, kArrival, id);
}

void Port::transmit_faulty(PacketId id, TimePoint arrival) {
  PacketPool& pool = simulation_.packets();
  PacketId copy = kNoPacket;
  PacketPool::Slot& slot = pool[id];
  const Fate fate = faults_.decide(slot.packet, simulation_.now(), arrival);
  if (fate.held_back) ++counters_.delays;
  if (fate.corrupted) ++counters_.corruptions;
  if (fate.drop != DropCause::kNone) {
    counters_.drops.count(fate.drop);
    pool.give_back(id);
    return;
  }
  if (fate.duplicated) {
    ++counters_.duplicates;
    copy = pool.take();
    pool[copy].packet = slot.packet;
    pool[copy].wire_bytes = slot.wire_bytes;
  }
  simulation_.events().push(arrival + fate.delay, peer_, kArrival, id);
  if (copy != kNoPacket) simulation_.events().push(arrival + fate.delay + fate.duplicate_delay, peer_, kArrival, copy);
}

}  // namespace clustar::transport::sim
