// Memory of the engine's own for payload that leaves: ciphertext, and parity. A slot per packet that is pending, and
// per one that the device may still read. All calls with the engine's lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace clustar::mlt::driver {

class PayloadSlots {
 public:
  // `segment`: most bytes of one. `pending`: most packets that are not taken yet. The device outlives this. Error:
  // memory that the device does not register.
  static Result<std::unique_ptr<PayloadSlots>> create(transport::io::PacketIo& io, std::size_t segment,
                                                      std::size_t pending);

  // Where the next payload of `bytes` goes. `pending`: the packets that are still to be sent.
  transport::io::MemorySlice take(std::size_t bytes, std::span<const transport::io::TxPacket> pending);
  std::byte* at(const transport::io::MemorySlice& slice) { return memory_.data() + slice.offset; }
  // The device took these.
  void taken(std::span<const transport::io::TxPacket> packets);

 private:
  struct Slot {
    bool pending = false;       // or was, when last looked
    std::uint64_t free_at = 0;  // when so many packets were taken, the device does not read it any more
  };

  PayloadSlots(std::size_t segment, std::size_t pending, std::size_t in_flight);
  std::optional<std::size_t> find_free();

  const std::size_t segment_;
  const std::size_t in_flight_;    // Capabilities::in_flight
  std::vector<std::byte> memory_;  // by slot
  std::unique_ptr<transport::io::Mr> mr_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  std::uint64_t taken_ = 0;  // packets
};

}  // namespace clustar::mlt::driver
