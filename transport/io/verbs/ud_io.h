// io::PacketIo over verbs UD: a queue pair per path, shared by all peers; path k talks to the peer's queue pair k.
// Payload is read where it lies (Capabilities::copies is false), headers are copied.
//
// Thread rule: as PacketIo's; arm and the accessors belong to the thread that sends and receives. quiesce() may run
// beside everything, as ~Mr does, which calls it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gdr/registration_cache.h"
#include "transport/base/log.h"
#include "transport/base/system_clock.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/device_memory.h"
#include "transport/io/verbs/device_writer.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/registrations.h"
#include "transport/io/verbs/ud_cycle.h"
#include "transport/io/verbs/ud_peers.h"
#include "transport/io/verbs/ud_rx.h"
#include "transport/io/verbs/ud_tx.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {

struct UdOptions {
  std::string device{};    // "mlx5_0"
  std::uint8_t port = 1;   // of the device
  GidWish gid{};           // ours
  std::uint8_t paths = 8;  // 1 .. 16
  // Packets that a path's queue pair holds, 16 .. 4,096; and all of them together, `window`, 16 .. 32,768: so many
  // headers are kept, and so long payload may be read (Capabilities::in_flight).
  std::uint32_t send_requests = 256;
  std::uint32_t window = 1024;
  // Each takes whatever the network lets pass. For all paths together, 64 .. 32,768: what comes while all are taken is
  // lost.
  std::uint32_t receive_slots = 4096;
  // Packets that fit, with their payload, are copied into the request: the NIC need not fetch them. 0 .. 512.
  std::uint32_t inline_bytes = 60;
  // How long it may be sent to while its link is down, until that is the device's end: as long as MLT bears a dead
  // host.
  Duration link_patience = std::chrono::seconds(30);
  FixedMarks marks{};
  int access = 0;  // ibv_access_flags of what reg_mr registers; UD itself needs none
  // What the device reaches: with more than host memory there is a writer(), if the device can be connected to itself.
  DeviceMemory memory{};
  bool force_flush = false;  // CLUSTAR_IB_FORCE_FLUSH
  Log log{};                 // by which ways memory was registered
  bool apart = false;        // control connections run over another network: control_network.h
};

struct UdCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t bytes_sent = 0;  // header and payload
  std::uint64_t post_calls = 0;  // each a chain of packets on one path
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t back_pressure = 0;  // send() took less than it was offered
  std::uint64_t slots_empty = 0;    // receive() found every slot taken: the NIC may have dropped
  std::uint64_t port_errors = 0;    // the link went down
  std::uint64_t renewed = 0;  // times a peer was resolved again: after a change of the port, or when it was silent
  // Lost, by cause.
  // Sent to a peer that does not answer ARP or neighbour discovery, or whose queue pairs are another's by now.
  std::uint64_t unresolved = 0;
  // Given to a queue pair that had failed, as SoftRoCE's do while the link is down: see UdCycle.
  std::uint64_t link_lost = 0;
  std::uint64_t restarts = 0;   // of such queue pairs
  std::uint64_t strangers = 0;  // received from a queue pair that is no peer's for that path
  std::uint64_t malformed = 0;  // without a network header, longer than the MTU, or with another framing than ours
};

class UdIo final : public PacketIo {
 public:
  static constexpr std::uint8_t kMostPaths = 16;

  // Error: options out of range (kInvalidArgument), no such device, port not active, no usable GID (kUnavailable), or
  // what the device refuses.
  static Result<std::unique_ptr<UdIo>> open(const UdOptions& options);
  ~UdIo() override;

  const UdAddress& local() const { return local_; }
  // Does not block: address handles are made by a thread of this, those of a traffic class when its first packet is
  // sent. Until they are there it does not leave: for 500 ms or the first failure that is back-pressure, then loss
  // (UdCounters::unresolved), and it is tried again each second. As many queue pairs as there are paths here.
  Result<PeerId> add_peer(const UdAddress& address);
  std::size_t peers() const { return peers_.size(); }
  // Whether what is sent to it leaves. Error: why not, and it is being tried again.
  Result<bool> ready(PeerId peer) const { return peers_.ready(peer); }

  // Before a thread sleeps on ready_fds(): how long it may at most; 0: something can be received now.
  Result<Duration> arm();

  const UdCounters& counters() const { return counters_; }
  const Device& device() const { return device_; }
  const ProtectionDomain& domain() const { return domain_; }
  const GidEntry& gid() const { return gid_; }
  std::uint8_t port() const { return options_.port; }

  const Capabilities& capabilities() const override { return capabilities_; }
  const LinkProfile& link() const override { return link_; }
  Reach reach() const override { return reach_; }
  AddressBlob local_address() const override { return local_.serialize(); }
  Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(PeerId peer) override;
  // Of the kinds of UdOptions::memory. The Mr is a Registered.
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  Result<std::size_t> receive(std::span<RxPacket> packets) override;
  void release(std::span<const RxPacket> packets) override;
  PlacementHint expect(PeerId, std::uint64_t, const MemorySlice&, std::size_t) override { return {}; }
  void cancel(PlacementHint) override {}
  void quiesce() override { tx_->quiesce(); }
  MemoryWriter* writer() override { return writer_.get(); }
  std::span<const int> ready_fds() const override { return fds_; }
  Duration before_sleep() override { return arm().value_or(Duration(0)); }
  void wait(Duration timeout) override;
  std::string describe() const override;

 private:
  // What is made one after another, before it is known that all of it can be.
  struct Parts;
  UdIo(const UdOptions& options, Parts parts);

  bool deliver(const ibv_wc& done, TimePoint now, RxPacket& packet);
  void on_failed_receive(const ibv_wc& done);
  bool is_ours(std::uint32_t queue_pair) const;
  void look_for_events(TimePoint now);
  bool invalid(const TxPacket& packet) const;
  Error refusal(const TxPacket& packet) const;

  const UdOptions options_;
  const SystemClock clock_;
  Device device_;
  ProtectionDomain domain_;
  DomainRegistrar registrar_;
  gdr::RegistrationCache registrations_;
  GidEntry gid_;
  UdAddress local_;
  Capabilities capabilities_;
  LinkProfile link_;
  Reach reach_;
  std::array<int, 2> fds_{};
  UdCounters counters_;
  // Destroyed from below: queue pairs (in tx_), what they receive into, address handles.
  UdPeers peers_;
  std::unique_ptr<UdRx> rx_;
  std::unique_ptr<UdTx> tx_;
  std::unique_ptr<DeviceWriter> writer_;
  UdSweep sweep_{options_.receive_slots};  // of what is received
  std::optional<Error> lost_;              // the device
  bool took_less_ = false;                 // the last send()
  bool unresolved_ = false;                // because handles of a peer were awaited
  std::uint64_t completed_ = 0;            // by tx_, when it did
  TimePoint events_at_{};                  // when to look for the device's events again
};

}  // namespace clustar::transport::io::verbs
