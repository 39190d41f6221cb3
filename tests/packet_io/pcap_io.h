// Writes what is sent and received to a file that Wireshark opens; docs/wireshark has the dissector. Trouble with the
// file ends the recording and never the traffic.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/packet_io/pcapng_writer.h"
#include "transport/base/system_clock.h"
#include "transport/io/decorators/forwarding_io.h"

namespace clustar::transport::io {

struct PcapIoOptions {
  PcapngOptions file;
  std::uint16_t port = 61074;    // the destination of all packets, which the dissector knows
  const Clock* clock = nullptr;  // of rx_time; outlives the PcapIo; null: the machine's
  Duration epoch{0};             // the clock's zero, since 1970; with the machine's clock it is found out
};

// A PacketIo has no IP and UDP headers to show, so they are made up: this end is 192.0.2.1, peer n is 10.n in 24 bits,
// the source port is 49152 + path, DSCP is the class times 8, ECN as sent or seen. As on kernel UDP, one byte with the
// header's length goes in front. Payload that is not in host memory, or was placed by a PlacementHint, is left out.
class PcapIo final : public ForwardingIo {
 public:
  PcapIo(std::unique_ptr<PacketIo> inner, const PcapIoOptions& options);

  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  Result<std::size_t> receive(std::span<RxPacket> packets) override;

  const PcapngWriter& file() const { return writer_; }
  void flush() { writer_.flush(); }

 private:
  void record(const TxPacket& packet, Duration time);
  void record(const RxPacket& packet, Duration time);

  PcapIoOptions options_;
  SystemClock system_clock_;
  const Clock* clock_;
  PcapngWriter writer_;
};

}  // namespace clustar::transport::io
