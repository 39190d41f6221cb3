#include "mlt/driver/payload_slots.h"

namespace clustar::mlt::driver {

namespace io = transport::io;

PayloadSlots::PayloadSlots(std::size_t segment, std::size_t pending, std::size_t in_flight)
    : segment_(segment), in_flight_(in_flight), memory_(segment * (pending + in_flight)), slots_(pending + in_flight) {}

Result<std::unique_ptr<PayloadSlots>> PayloadSlots::create(io::PacketIo& io, std::size_t segment, std::size_t pending) {
  const std::size_t in_flight = io.capabilities().copies ? 0 : io.capabilities().in_flight;
  std::unique_ptr<PayloadSlots> made(new PayloadSlots(segment, pending, in_flight));
  auto mr = io.reg_mr(gdr::MemoryRef::host(made->memory_.data(), made->memory_.size()));
  if (!mr) return tl::unexpected(mr.error());
  made->mr_ = std::move(*mr);
  return made;
}

void PayloadSlots::taken(std::span<const io::TxPacket> packets) {
  for (const io::TxPacket& packet : packets) {
    ++taken_;
    if (packet.payload.mr == nullptr || packet.payload.mr != mr_.get()) continue;
    slots_[packet.payload.offset / segment_] = {false, taken_ + in_flight_};
  }
}

std::optional<std::size_t> PayloadSlots::find_free() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::size_t slot = (next_ + i) % slots_.size();
    if (!slots_[slot].pending && slots_[slot].free_at <= taken_) return slot;
  }
  return std::nullopt;
}

// Packets leave in order, so the next slot is the oldest; but a message that ended takes its own with it: a caller that
// holds a slot is looked up when all seem to be held.
io::MemorySlice PayloadSlots::take(std::size_t bytes, std::span<const io::TxPacket> pending) {
  auto found = find_free();
  if (!found) {
    for (Slot& slot : slots_) slot.pending = false;
    for (const io::TxPacket& packet : pending) {
      if (packet.payload.mr == mr_.get()) slots_[packet.payload.offset / segment_].pending = true;
    }
    found = find_free();  // fewer are pending or in flight than there are slots
  }
  slots_[*found].pending = true;
  next_ = (*found + 1) % slots_.size();
  return {mr_.get(), *found * segment_, bytes};
}

}  // namespace clustar::mlt::driver
