// io::PacketIo over libfabric's datagram endpoints (FI_EP_DGRAM): path k runs from our endpoint k to the peer's. All
// payload is copied, once at each end: no memory of the caller's is registered.
//
// Thread rule: as PacketIo's; the accessors belong to the thread that sends and receives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libfabric_shim/address_vector.h"
#include "libfabric_shim/completion_queue.h"
#include "libfabric_shim/dgram/peers.h"
#include "libfabric_shim/dgram/pressure.h"
#include "libfabric_shim/dgram/slots.h"
#include "libfabric_shim/dgram/wire.h"
#include "libfabric_shim/endpoint.h"
#include "transport/base/ring.h"
#include "transport/base/system_clock.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::ofi {

struct OfiIoOptions {
  std::uint8_t paths = 8;      // 1 .. kMostPaths; each is an endpoint
  std::size_t most_bytes = 0;  // of a datagram; 0 = what the provider takes, which is always the limit
  io::LinkProfile link = io::LinkProfile::usual(io::LinkKind::kKernel);
  // Control connections run over another network than packets: control_network.h.
  bool apart = false;
  // Per path, 16 .. 4,096: receives that wait for datagrams, and packets that a caller may hold besides. No more of
  // either than the provider takes.
  std::uint32_t receives = 256;
  std::uint32_t held = 256;
  std::uint32_t sends = 256;           // that the provider has not finished, for all paths
  bool inject = true;                  // without completions, where the provider takes that
  std::size_t socket_bytes = 4 << 20;  // room of each socket, where the provider has sockets
};

struct OfiIoCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t bytes_sent = 0;  // header and payload
  std::uint64_t injected = 0;    // of those sent: without a completion
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t back_pressure = 0;  // send() ended because the provider had no room
  std::uint64_t slots_empty = 0;    // receive() found a path without receives: the caller holds all its packets
  // Lost, by cause.
  std::uint64_t unreachable = 0;  // sent while there was no way to the peer
  std::uint64_t strangers = 0;    // no peer's key
  std::uint64_t malformed = 0;
  std::uint64_t truncated = 0;  // longer than any datagram of ours
};

inline constexpr std::size_t kLeastPacket = 64;  // that any end takes

class OfiIo final : public io::PacketIo {
 public:
  // Errors: libfabric's; addresses that a handshake has no room for.
  static Result<std::unique_ptr<OfiIo>> open(Info info, const OfiIoOptions& options);

  const OfiIoCounters& counters() const { return counters_; }
  const std::vector<std::byte>& address(std::size_t path) const { return paths_[path].endpoint.address(); }
  // As widen_sockets() says.
  std::size_t socket_room() const { return socket_room_; }
  // Of peers, that the provider keeps.
  std::size_t known_addresses() const { return addresses_->size(); }

  // A peer may take less: what is longer than its max_packet is refused to it alone.
  const io::Capabilities& capabilities() const override { return capabilities_; }
  const io::LinkProfile& link() const override { return options_.link; }
  io::AddressBlob local_address() const override { return local_; }
  Result<io::PeerId> add_peer(const io::AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(io::PeerId peer) override;
  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory) override;  // host memory only
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override;
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override;
  void release(std::span<const io::RxPacket> packets) override;
  io::PlacementHint expect(io::PeerId, std::uint64_t, const io::MemorySlice&, std::size_t) override { return {}; }
  void cancel(io::PlacementHint) override {}
  std::span<const int> ready_fds() const override { return fds_; }
  Duration before_sleep() override;
  void wait(Duration timeout) override;
  std::string describe() const override;

 private:
  struct Path {
    CompletionQueue received;
    Slots slots;
    Endpoint endpoint;  // ends before its queue and slots
    std::uint32_t posted = 0;
  };
  // Received and not yet given out.
  struct Waiting {
    io::PeerId peer = 0;
    std::uint8_t path = 0;
    std::uint32_t slot = 0;
    TimePoint time{};
    DatagramFrame frame{};
  };
  enum class Outcome : std::uint8_t { kTaken, kFull };

  OfiIo(Domain domain, const OfiIoOptions& options);
  Result<void> open_paths();
  Result<void> announce();
  Result<std::vector<Peers::Address>> insert(const EndAddress& address);
  // From the provider's table, as soon as nothing is under way to anybody.
  void forget_addresses();

  const Peers::Address* destination(const io::TxPacket& packet) const;
  std::string refusal(const io::TxPacket& packet) const;
  Result<Outcome> send_one(const io::TxPacket& packet, Peers::Address to);
  // -FI_EAGAIN also where there is no slot.
  ssize_t hand_over(const io::TxPacket& packet, Peers::Address to);
  std::size_t write(const io::TxPacket& packet, std::span<std::byte> into) const;
  // Of what was sent with a completion.
  Result<void> reap();

  Result<void> read_path(std::uint8_t path, std::size_t most);
  void take(std::uint8_t path, const fi_cq_msg_entry& done, TimePoint now);
  // A receive ended without a datagram that can be given out.
  Result<void> on_receive_failed(std::uint8_t path, const CompletionQueue::Failure& failed);
  Result<void> post(Path& path);
  std::size_t deliver(std::span<io::RxPacket> packets);
  // Whether a path's descriptor tells of something by then.
  bool look(Duration timeout);

  const OfiIoOptions options_;
  SystemClock clock_;
  Domain domain_;
  const std::size_t send_prefix_;  // FI_MSG_PREFIX: bytes in front that are the provider's
  const std::size_t receive_prefix_;
  const std::size_t most_;    // of a datagram
  const std::size_t inject_;  // datagrams of at most so many bytes complete at once
  io::Capabilities capabilities_;
  io::AddressBlob local_;
  std::uint64_t key_ = 0;
  std::size_t socket_room_ = 0;
  OfiIoCounters counters_;
  Peers peers_;

  std::optional<AddressVector> addresses_;
  std::vector<Peers::Address> left_;  // of removed peers
  std::optional<CompletionQueue> sent_;
  std::optional<Slots> send_slots_;
  std::vector<std::byte> scratch_;  // for datagrams that complete at once
  std::vector<Path> paths_;         // ends before what its endpoints use
  std::vector<int> fds_;
  Pressure pressure_;
  std::optional<Error> late_;  // came after packets of the same call, and is the next call's

  Ring<Waiting> waiting_;
  // An empty look costs a system call: receive() looks at the paths on which something came at the last look, one bit
  // each, and at one more.
  std::uint32_t busy_ = 0;
  std::uint8_t quiet_ = 0;      // that one, round robin
  std::uint8_t next_path_ = 0;  // which is read first, round robin
  // Paths whose descriptors tell when something comes: fi_trywait was asked since something came.
  std::uint32_t armed_ = 0;
};

}  // namespace clustar::transport::ofi
