#include "transport/sim/sim_packet_io.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "transport/base/bytes.h"

namespace clustar::transport::sim {

SimPacketIo::SimPacketIo(Network& network, HostId host, const SimPacketIoOptions& options)
    : network_(network),
      host_(network.host(host)),
      options_(options),
      link_(io::LinkProfile::usual(io::LinkKind::kSimulated, host_.nic().options().rate_bps)),
      removed_(network.hosts()) {
  capabilities_.max_packet = options.max_packet;
  capabilities_.header_bytes = std::min(io::Header::kMax, options.max_packet);
  capabilities_.paths = std::max<std::uint8_t>(options.paths, 1);
  capabilities_.marks = true;
  host_.attach(this);
}

SimPacketIo::~SimPacketIo() { host_.attach(nullptr); }

io::AddressBlob SimPacketIo::local_address() const {
  std::array<std::byte, 4> bytes;
  WireWriter(std::span(bytes)).store<0>(host_.id());
  return io::AddressBlob::of(bytes).value();
}

Result<io::PeerId> SimPacketIo::add_peer(const io::AddressBlob& address, const net::Endpoint&) {
  const auto bytes = address.bytes();
  const bool whole = bytes.size() == 4;
  const io::PeerId peer = whole ? WireReader(bytes.first<4>()).load<std::uint32_t, 0>() : 0;
  if (!whole || peer >= removed_.size()) {
    return fail(ErrorCode::kRemote, "the simulated peer's address is damaged, or there is no such host");
  }
  removed_[peer] = false;
  return peer;
}

Result<void> SimPacketIo::remove_peer(io::PeerId peer) {
  if (!is_peer(peer)) return fail(ErrorCode::kInvalidArgument, "there is no peer " + std::to_string(peer));
  removed_[peer] = true;
  for (std::size_t left = waiting_.size(); left > 0; --left) {
    const PacketId id = waiting_.pop_front();
    if (received_[id].packet.source == peer) {
      received_.give_back(id);
    } else {
      waiting_.push_back(id);
    }
  }
  return {};
}

Result<std::unique_ptr<io::Mr>> SimPacketIo::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind != gdr::MemoryKind::kHost) {
    return fail(ErrorCode::kUnavailable,
                std::string("the simulated network reaches host memory only; memory of kind '") +
                    gdr::to_string(memory.kind) + "' cannot be registered");
  }
  if (memory.address == nullptr && memory.length > 0) {
    return fail(ErrorCode::kInvalidArgument, "memory to be registered has a length but no address");
  }
  return std::make_unique<io::Mr>(memory);
}

std::string SimPacketIo::check(const io::TxPacket& packet) const {
  const io::MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  if (slice.length > options_.max_packet || header + slice.length > options_.max_packet) {
    return "a packet of " + std::to_string(header) + " + " + std::to_string(slice.length) +
           " bytes was offered; the limit is " + std::to_string(options_.max_packet);
  }
  if (!is_peer(packet.peer)) {
    return "there is no peer " + std::to_string(packet.peer) + "; peers are below " + std::to_string(network_.hosts());
  }
  if (packet.path >= capabilities_.paths) {
    return "there is no path " + std::to_string(packet.path) + "; paths are below " +
           std::to_string(capabilities_.paths);
  }
  if (packet.traffic_class >= kClasses) {
    return "there is no traffic class " + std::to_string(packet.traffic_class) + "; classes are 0 to 7";
  }
  if (slice.mr == nullptr
          ? slice.length > 0
          : slice.offset > slice.mr->memory().length || slice.length > slice.mr->memory().length - slice.offset) {
    return "a payload of " + std::to_string(slice.length) + " bytes at offset " + std::to_string(slice.offset) +
           " is outside of its registered memory";
  }
  return {};
}

Result<std::size_t> SimPacketIo::send(std::span<const io::TxPacket> packets) {
  std::size_t taken = 0;
  for (const io::TxPacket& packet : packets) {
    std::string wrong = check(packet);
    if (!wrong.empty()) {
      if (taken > 0) break;  // those before it are on their way; the next call tells
      return fail(ErrorCode::kInvalidArgument, std::move(wrong));
    }
    scratch_.destination = packet.peer;
    scratch_.path = packet.path;
    scratch_.traffic_class = packet.traffic_class;
    scratch_.ecn = packet.ect ? io::Ecn::kEct0 : io::Ecn::kNotEct;
    scratch_.header = packet.header;
    scratch_.payload_bytes = static_cast<std::uint32_t>(packet.payload.length);
    scratch_.payload.clear();
    if (packet.payload.length > 0) {
      const std::byte* from = packet.payload.mr->memory().address + packet.payload.offset;
      scratch_.payload.assign(from, from + packet.payload.length);
    }
    room_ = host_.send(scratch_);
    if (!room_) break;
    ++taken;
  }
  return taken;
}

void SimPacketIo::on_packet(SimPacket& packet, TimePoint now) {
  if (!is_peer(packet.source)) return;  // a stranger's
  if (received_.in_use() >= options_.receive_queue_packets) {
    host_.counters().drops.count(DropCause::kReceiveQueue);
    return;
  }
  const PacketId id = received_.take();
  SimPacket& kept = received_[id].packet;
  std::swap(kept, packet);  // the network's pool gets a payload buffer back, so nothing is allocated
  kept.sent = now;          // no longer needed; holds the time of arrival
  waiting_.push_back(id);
}

Result<std::size_t> SimPacketIo::receive(std::span<io::RxPacket> packets) {
  std::size_t filled = 0;
  for (; filled < packets.size() && !waiting_.empty(); ++filled) {
    const PacketId id = waiting_.pop_front();
    const SimPacket& packet = received_[id].packet;
    io::RxPacket& out = packets[filled];
    out.peer = packet.source;
    out.path = packet.path;
    out.traffic_class = packet.traffic_class;
    out.ecn = packet.ecn;
    out.trimmed = packet.trimmed;
    out.rx_time = packet.sent;
    out.header = packet.header.bytes();
    out.payload = packet.payload;
    out.cookie = id;
  }
  return filled;
}

void SimPacketIo::release(std::span<const io::RxPacket> packets) {
  for (const io::RxPacket& packet : packets) {
    assert(packet.cookie < received_.capacity());
    received_.give_back(static_cast<PacketId>(packet.cookie));
  }
}

void SimPacketIo::wait(Duration timeout) {
  Simulation& simulation = host_.simulation();
  if (simulation.running()) return;
  const TimePoint until = simulation.now() + std::max(timeout, Duration::zero());
  const bool wants_room = !room_;
  while (waiting_.empty() && !(wants_room && room_)) {
    if (simulation.events().next_time() > until) return simulation.run_until(until);
    simulation.step();
  }
}

}  // namespace clustar::transport::sim
