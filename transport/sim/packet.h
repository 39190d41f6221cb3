// A simulated packet and the pool that all packets in flight come from.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/time.h"
#include "transport/io/packet_io.h"
#include "transport/sim/event_queue.h"

namespace clustar::transport::sim {

using HostId = std::uint32_t;  // 0 .. hosts - 1
inline constexpr std::size_t kClasses = 8;

// In descriptor mode the payload is only a length and a tag, so that a run costs the same for any payload. In byte mode
// `payload` holds payload_bytes bytes and arrives as it was sent.
struct SimPacket {
  HostId source = 0;  // filled in by Host::send()
  HostId destination = 0;
  std::uint32_t payload_bytes = 0;
  std::uint8_t path = 0;           // chooses the spine, as a UDP source port does under ECMP
  std::uint8_t traffic_class = 0;  // 0 .. 7, 7 is served first
  io::Ecn ecn = io::Ecn::kNotEct;
  bool trimmed = false;
  bool corrupted = false;         // for the harness; a protocol must find out by itself
  std::uint64_t payload_tag = 0;  // stands for the content in descriptor mode; corruption changes it
  TimePoint sent{};               // filled in by Host::send()
  io::Header header;
  std::vector<std::byte> payload;  // empty in descriptor mode
};

using PacketId = std::uint32_t;
inline constexpr PacketId kNoPacket = 0xffffffff;

// Packets by number, at fixed addresses; free ones are reused last in, first out, while they are still in the cache.
class PacketPool {
 public:
  struct alignas(64) Slot {
    PacketId next = kNoPacket;     // in a queue, or in the free list
    std::uint32_t wire_bytes = 0;  // with the overhead of lower layers
    SimPacket packet;
  };

  PacketId take() {
    if (free_ == kNoPacket) grow();
    const PacketId id = free_;
    free_ = (*this)[id].next;
    if (free_ != kNoPacket) prepare(free_, sizeof(Slot));  // with many hosts even this one may have left the cache
    ++in_use_;
    return id;
  }
  void give_back(PacketId id) {
    assert(in_use_ > 0);
    (*this)[id].next = free_;
    free_ = id;
    --in_use_;
  }
  static constexpr std::size_t kFirstBytes = 64;  // of a slot: all that switches look at
  // Asks for the first `bytes` of a packet that is on its way.
  void prepare(PacketId id, std::size_t bytes) const { prefetch(&blocks_[id / kBlock][id % kBlock], bytes); }
  Slot& operator[](PacketId id) { return blocks_[id / kBlock][id % kBlock]; }
  std::size_t in_use() const { return in_use_; }
  std::size_t capacity() const { return blocks_.size() * kBlock; }

 private:
  static constexpr std::size_t kBlock = 256;
  void grow() {
    const auto first = static_cast<PacketId>(capacity());
    blocks_.push_back(std::make_unique<Slot[]>(kBlock));
    for (std::size_t i = kBlock; i-- > 0;) {
      blocks_.back()[i].next = free_;
      free_ = first + static_cast<PacketId>(i);
    }
  }

  std::vector<std::unique_ptr<Slot[]>> blocks_;
  PacketId free_ = kNoPacket;
  std::size_t in_use_ = 0;
};

}  // namespace clustar::transport::sim
