// io::PacketIo over a port of DPDK, in the datagrams of transport/io/udp: its peers may be sockets of a kernel. Path k
// runs from our port k to the peer's port k.
//
// Thread rule: as PacketIo's; the accessors belong to the thread that sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/system_clock.h"
#include "transport/io/dpdk/borrowed.h"
#include "transport/io/dpdk/core/peer.h"
#include "transport/io/dpdk/host.h"
#include "transport/io/dpdk/inbox.h"
#include "transport/io/packet_io.h"
#include "transport/io/peer_table.h"

namespace clustar::transport::io::dpdk {

struct DpdkIoOptions {
  std::uint8_t paths = 8;    // 1 .. Host::kMostPaths
  std::size_t inbox = 2048;  // datagrams that wait to be read; more are lost
  LinkProfile link{};
  // Control connections run over another network than packets: control_network.h.
  bool apart = false;
};

struct DpdkIoCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t back_pressure = 0;  // send() ended because no buffer was free or the device was full
  std::uint64_t strangers = 0;      // from an address that is no peer's
  std::uint64_t malformed = 0;      // not framed as transport/io/udp/frame.h says
};

class DpdkIo final : public PacketIo {
 public:
  static Result<std::unique_ptr<DpdkIo>> open(std::shared_ptr<Host> host, const DpdkIoOptions& options);
  ~DpdkIo() override;
  DpdkIo(const DpdkIo&) = delete;
  DpdkIo& operator=(const DpdkIo&) = delete;

  const DpdkIoCounters& counters() const { return counters_; }
  Host& host() { return *host_; }
  bool knows_ways();  // the MAC of every peer is known

  const Capabilities& capabilities() const override { return capabilities_; }
  const LinkProfile& link() const override { return options_.link; }
  AddressBlob local_address() const override;
  Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(PeerId peer) override;
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;  // host memory only
  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  Result<std::size_t> receive(std::span<RxPacket> packets) override;
  void release(std::span<const RxPacket> packets) override;
  PlacementHint expect(PeerId, std::uint64_t, const MemorySlice&, std::size_t) override { return {}; }
  void cancel(PlacementHint) override {}
  std::uint64_t unsent_bytes() const override;
  std::span<const int> ready_fds() const override { return ready_; }
  Duration before_sleep() override;
  void wait(Duration timeout) override;
  void quiesce() override;
  std::string describe() const override;

 private:
  DpdkIo(std::shared_ptr<Host> host, const DpdkIoOptions& options);

  bool is_valid(const TxPacket& packet, const Peer* peer) const;
  std::string refusal(const TxPacket& packet) const;
  void drop_borrowed();  // locked
  // False: no buffer is free.
  bool send_one(const TxPacket& packet, const Peer& peer);
  // The next datagram of a peer, whole or what is left of it; false: none.
  bool next_datagram();
  void drop_current();
  std::size_t deliver(std::span<RxPacket> packets);

  const std::shared_ptr<Host> host_;
  const DpdkIoOptions options_;
  SystemClock clock_;
  Capabilities capabilities_;
  DpdkIoCounters counters_;
  PeerTable<Peer> peers_{"dpdk"};
  Inbox inbox_;
  std::optional<Borrowed> borrowed_{};  // where the device gathers
  std::vector<int> ready_{};            // the device's sockets and the inbox's; none where the device has none
  std::uint16_t first_port_ = 0;        // 0: not bound
  // That is given out packet by packet; it holds its buffer.
  std::optional<Datagram> current_{};
  PeerId current_peer_ = 0;
};

}  // namespace clustar::transport::io::dpdk
