#include "transport/io/decorators/held_packets.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace clustar::transport::io {

Result<HeldPackets> HeldPackets::create(PacketIo& backend, std::size_t count) {
  HeldPackets held;
  held.stride_ = backend.capabilities().max_packet;
  held.memory_.resize(count * held.stride_);
  auto mr = backend.reg_mr(gdr::MemoryRef::host(held.memory_.data(), held.memory_.size()));
  if (!mr) return tl::unexpected(std::move(mr.error()));
  held.mr_ = std::move(*mr);
  held.held_.resize(count);
  held.free_.reserve(count);
  while (held.free_.size() < count) held.free_.push_back(static_cast<Id>(count - 1 - held.free_.size()));
  return held;
}

HeldPackets::Id HeldPackets::take(const TxPacket& packet, std::span<const std::byte> payload) {
  assert(!free_.empty() && payload.size() <= stride_);
  const Id id = free_.back();
  free_.pop_back();
  held_[id] = {.packet = packet};
  held_[id].packet.payload = payload.empty() ? MemorySlice{} : MemorySlice{mr_.get(), id * stride_, payload.size()};
  std::ranges::copy(payload, this->payload(id).begin());
  return id;
}

std::span<std::byte> HeldPackets::payload(Id id) {
  return std::span(memory_).subspan(id * stride_, held_[id].packet.payload.length);
}

}  // namespace clustar::transport::io
