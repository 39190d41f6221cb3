// io::PacketIo over a simulated host, in byte mode: what a driver would see on a real network.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/ring.h"
#include "transport/io/packet_io.h"
#include "transport/sim/host.h"
#include "transport/sim/topology.h"

namespace clustar::transport::sim {

struct SimPacketIoOptions {
  std::size_t max_packet = 1472;               // header and payload; Ethernet's 1500 less IPv4 and UDP
  std::uint8_t paths = 16;                     // 1 .. 255
  std::uint32_t receive_queue_packets = 1024;  // received and not released; beyond it packets are lost
};

// A PeerId is a HostId, and all hosts are peers from the beginning. Takes the host's endpoint; the network outlives
// this. wait() lets the simulation run, all hosts of it, so it must not be called from inside of an event, where it
// returns at once.
class SimPacketIo final : public io::PacketIo, private Endpoint {
 public:
  SimPacketIo(Network& network, HostId host, const SimPacketIoOptions& options = {});
  ~SimPacketIo() override;

  const io::Capabilities& capabilities() const override { return capabilities_; }
  const io::LinkProfile& link() const override { return link_; }
  io::AddressBlob local_address() const override;  // the host's number
  Result<io::PeerId> add_peer(const io::AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(io::PeerId peer) override;
  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override;
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override;
  void release(std::span<const io::RxPacket> packets) override;
  io::PlacementHint expect(io::PeerId, std::uint64_t, const io::MemorySlice&, std::size_t) override { return {}; }
  void cancel(io::PlacementHint) override {}
  void wait(Duration timeout) override;

  Host& host() { return host_; }
  std::size_t unreleased() const { return received_.in_use(); }  // waiting in the receive queue or at the caller

 private:
  void on_packet(SimPacket& packet, TimePoint now) override;
  TimePoint on_wake(TimePoint) override { return kNever; }
  void on_room(TimePoint) override { room_ = true; }
  bool is_peer(io::PeerId peer) const { return peer < removed_.size() && !removed_[peer]; }
  // Empty if the packet may be sent.
  std::string check(const io::TxPacket& packet) const;

  Network& network_;
  Host& host_;
  SimPacketIoOptions options_;
  io::Capabilities capabilities_;
  io::LinkProfile link_;
  std::vector<bool> removed_;  // by peer
  PacketPool received_;
  Ring<PacketId> waiting_;  // of received_
  SimPacket scratch_;       // keeps its payload's capacity
  bool room_ = true;        // false after a refused send() until a packet left the NIC
};

}  // namespace clustar::transport::sim
