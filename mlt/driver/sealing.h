// Between the engine and its device: seals what leaves, and lets nothing in that is not genuine. Made only where there
// is a pre-shared key. All calls with the engine's lock held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mlt/core/endpoint.h"
#include "mlt/driver/payload_slots.h"
#include "mlt/driver/protection.h"
#include "mlt/driver/seal.h"
#include "transport/io/packet_io.h"

namespace clustar::mlt::driver {

class Sealing {
 public:
  struct Counters {
    std::uint64_t unauthenticated = 0;  // of a connection here, by its secret, and not genuine
    std::uint64_t replayed = 0;         // seen before, or too old to tell
  };

  // `segment`: most payload bytes of a packet. `pending`: most packets that are sealed and not yet taken by the device.
  // The device and the protection outlive this. Error: memory that the device does not register.
  static Result<std::unique_ptr<Sealing>> create(const Protection& protection, transport::io::PacketIo& io,
                                                 std::size_t segment, std::size_t pending);

  void add(Endpoint::ConnectionId id, Endpoint::End end, const Session& session, std::uint8_t paths);
  void remove(Endpoint::ConnectionId id);

  // The device took these.
  void taken(std::span<const transport::io::TxPacket> packets);

  // To be called once per packet. `pending`: those that were sealed before and are still to be sent. False: nothing may
  // be sent for this connection any more.
  bool seal(Endpoint::ConnectionId id, transport::io::TxPacket& packet,
            std::span<const transport::io::TxPacket> pending);
  // False: drop it. Otherwise `header` is the core's, and `payload` in clear until the next call. What no connection
  // here claims passes as it is: `core` finds none either.
  bool open(const Endpoint& core, const transport::io::RxPacket& packet, std::span<const std::byte>& header,
            std::span<const std::byte>& payload);

  // Packets on the TCP connection. `bytes` begins with a header of `size` bytes; returns the sealed size, 0: not sent.
  // Where payload is encrypted, it goes to `cipher` and comes to `plain`, which may be where it was; otherwise both are
  // not looked at.
  std::size_t seal_control(Endpoint::ConnectionId id, std::span<std::byte> bytes, std::size_t size,
                           std::span<const std::byte> payload, std::byte* cipher);
  // The core's header; nothing: not genuine.
  std::optional<std::span<const std::byte>> open_control(Endpoint::ConnectionId id, std::span<const std::byte> bytes,
                                                         std::span<const std::byte> payload, std::byte* plain);

  const Counters& counters() const { return counters_; }

 private:
  explicit Sealing(const Protection& protection);
  bool count(Seal::Opened opened);

  const Protection& protection_;
  const bool encrypts_;
  std::unique_ptr<PayloadSlots> sealed_;      // null unless encrypts_
  std::vector<std::byte> received_;           // the latest packet's payload, decrypted
  std::vector<std::unique_ptr<Seal>> seals_;  // by connection
  Counters counters_;
};

}  // namespace clustar::mlt::driver
