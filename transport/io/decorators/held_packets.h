// A fixed number of packets with payload memory of their own, registered with the backend that will send them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/io/packet_io.h"

namespace clustar::transport::io {

class HeldPackets {
 public:
  using Id = std::uint32_t;
  struct Held {
    TxPacket packet;
    TimePoint due{};         // not before
    bool held_back = false;  // by reordering
  };

  // All memory is taken here: `count` times the backend's largest packet. The backend outlives this.
  static Result<HeldPackets> create(PacketIo& backend, std::size_t count);
  HeldPackets() = default;  // holds nothing

  std::size_t available() const { return free_.size(); }
  // With a copy of the header and of `payload`; needs one that is available.
  Id take(const TxPacket& packet, std::span<const std::byte> payload);
  void give_back(Id id) { free_.push_back(id); }

  Held& operator[](Id id) { return held_[id]; }
  std::span<std::byte> payload(Id id);

 private:
  std::vector<std::byte> memory_;
  std::unique_ptr<Mr> mr_;
  std::size_t stride_ = 0;
  std::vector<Held> held_;
  std::vector<Id> free_;
};

}  // namespace clustar::transport::io
