#include "transport/sim/switch.h"

#include <algorithm>

#include "transport/base/rng.h"

namespace clustar::transport::sim {

std::uint32_t ecmp_choice(HostId source, HostId destination, std::uint8_t path, std::uint32_t choices) {
  // Twice, because neighbouring hosts and paths must not give neighbouring spines.
  const std::uint64_t z = mix64(mix64((std::uint64_t{source} << 32 | destination) + kGoldenGamma * (path + 1ull)));
  return static_cast<std::uint32_t>(((z >> 32) * choices) >> 32);
}

Switch::Switch(Simulation& simulation, const SwitchOptions& options, const Routing& routing)
    : simulation_(simulation), options_(options), routing_(routing) {
  // Sums of both must not wrap.
  options_.buffer_bytes = std::min(options_.buffer_bytes, kUnlimited / 4);
  options_.trim_reserve_bytes = std::min(options_.trim_reserve_bytes, kUnlimited / 4);
}

void Switch::add_port(const LinkOptions& link, EventTarget& peer) {
  ports_.push_back(std::make_unique<Port>(simulation_, link, node(), peer, &used_bytes_));
}

Port* Switch::route(const SimPacket& packet) {
  const std::uint32_t local = packet.destination - routing_.first_host;  // wraps for hosts below the first
  if (local < routing_.hosts) return ports_[local / routing_.hosts_per_port].get();
  if (routing_.uplinks == 0) return nullptr;
  return ports_[routing_.hosts / routing_.hosts_per_port +
                ecmp_choice(packet.source, packet.destination, packet.path, routing_.uplinks)]
      .get();
}

void Switch::prepare(std::uint32_t kind, std::uint32_t argument) const {
  if (kind == kArrival) simulation_.packets().prepare(argument, PacketPool::kFirstBytes);
}

void Switch::on_event(std::uint32_t kind, std::uint32_t argument) {
  if (kind != kArrival) return;
  const PacketId id = argument;
  PacketPool::Slot& slot = simulation_.packets()[id];
  Port* const port = route(slot.packet);
  if (port == nullptr) {
    unroutable_.count(DropCause::kNoEndpoint);
    return simulation_.packets().give_back(id);
  }
  const std::size_t traffic_class = slot.packet.traffic_class & (kClasses - 1);
  const std::uint64_t occupied = options_.shared_buffer ? used_bytes_ : port->queued_bytes();
  const std::uint64_t reserve = slot.packet.trimmed ? options_.trim_reserve_bytes : 0;
  const std::uint64_t with_it = occupied + slot.wire_bytes;
  const bool selective = with_it > options_.drop_above[traffic_class];
  if ((selective || with_it > options_.buffer_bytes + reserve) && !trim(slot, occupied, *port)) {
    port->counters().drops.count(selective ? DropCause::kSelective : DropCause::kBuffer);
    return simulation_.packets().give_back(id);
  }
  const bool ect = slot.packet.ecn == io::Ecn::kEct0 || slot.packet.ecn == io::Ecn::kEct1;
  if (ect && port->queued_bytes(traffic_class) > options_.mark_above[traffic_class]) {
    slot.packet.ecn = io::Ecn::kCe;
    ++port->counters().marks;
  }
  port->enqueue(id);
}

bool Switch::trim(PacketPool::Slot& slot, std::uint64_t occupied, Port& port) {
  SimPacket& packet = slot.packet;
  const std::size_t traffic_class = packet.traffic_class & (kClasses - 1);
  if (!options_.trim[traffic_class] || packet.payload_bytes == 0) return false;
  const std::uint32_t header_bytes = slot.wire_bytes - packet.payload_bytes;
  if (occupied + header_bytes > options_.buffer_bytes + options_.trim_reserve_bytes) return false;
  slot.wire_bytes = header_bytes;
  packet.payload_bytes = 0;
  packet.payload.clear();
  packet.trimmed = true;
  packet.traffic_class = kClasses - 1;
  ++port.counters().trims;
  return true;
}

}  // namespace clustar::transport::sim
