// Parity between core and memory: what of a message makes a block, and the packets that are rebuilt in its receive.
// Host memory only: the processor computes, and it must not touch a GPU's. All calls with the engine's lock held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mlt/core/endpoint.h"
#include "mlt/driver/payload_slots.h"
#include "mlt/fec/codec.h"
#include "transport/io/packet_io.h"

namespace clustar::mlt::driver {

class Parity {
 public:
  // `segment`: most payload bytes of a packet. The codec and the device outlive this. Null without a codec, and where
  // the device reaches a GPU's memory, or writes payload to its place without a word.
  static std::unique_ptr<Parity> of(const fec::Codec* codec, transport::io::PacketIo& io, std::size_t segment);

  // Before the first encode(): room for payload of a device. Error: memory that it does not register.
  Result<void> open(transport::io::PacketIo& io, std::size_t pending);

  // Payload of the parity that `transmit` sends, of a message that lies in `message` and begins with packet `first`.
  transport::io::MemorySlice encode(const DataHeader& header, std::uint32_t first,
                                    const transport::io::MemorySlice& message,
                                    std::span<const transport::io::TxPacket> pending);
  // The device took these.
  void taken(std::span<const transport::io::TxPacket> packets) {
    if (slots_) slots_->taken(packets);
  }

  // `message`: the receive. `parity`: for each of what.missing.
  void rebuild(const Rebuild& what, std::byte* message, std::span<const std::byte* const> parity);

 private:
  Parity(const fec::Codec& codec, std::size_t segment) : codec_(codec), padded_(2 * segment), segment_(segment) {}

  const fec::Codec& codec_;
  std::unique_ptr<PayloadSlots> slots_;
  std::vector<std::byte> padded_;  // a message's last packet, filled up; then the same that is rebuilt
  const std::size_t segment_;
};

}  // namespace clustar::mlt::driver
