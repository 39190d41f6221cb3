// io::PacketIo over kernel UDP. One local socket per path, shared by all peers: path k runs from local port k to the
// peer's port k, so that both ports spread the paths over equal-cost routes.
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

#include "transport/base/ring.h"
#include "transport/base/system_clock.h"
#include "transport/io/packet_io.h"
#include "transport/io/peer_table.h"
#include "transport/io/udp/address.h"
#include "transport/io/udp/buffer_pool.h"
#include "transport/io/udp/path_socket.h"
#include "transport/io/udp/peer.h"
#include "transport/io/udp/rx_batch.h"
#include "transport/io/udp/tx_batch.h"

namespace clustar::transport::io::udp {

struct UdpOptions {
  std::string local;             // an address of this host, or the name of an interface
  std::uint8_t paths = 8;        // 1 .. 32
  std::uint16_t first_port = 0;  // path k is bound to first_port + k; 0 = the kernel chooses
  std::size_t max_packet = 0;    // header and payload; 0 = what the interface's MTU allows, which is always the limit
  std::size_t send_buffer_bytes = 4 << 20;     // per socket; the kernel caps both unless CAP_NET_ADMIN is held
  std::size_t receive_buffer_bytes = 4 << 20;  // per socket
  std::uint32_t send_batch = 64;               // messages per sendmmsg, 1 .. 256
  std::uint32_t receive_batch = 32;            // messages per recvmmsg, 1 .. 256
  std::uint32_t receive_buffers = 256;         // 1 .. 65,536; each 64 KiB with GRO, otherwise one datagram
  bool allow_gso = true;                       // use UDP_SEGMENT where the kernel has it
  bool allow_gro = true;                       // the same for UDP_GRO
  // Control connections run over another network than packets, so ends name their hosts: control_network.h.
  bool apart = false;
  std::optional<std::uint64_t> line_rate_bps{};  // nothing: as the interface says
};

// Since open. Packets are those of TxPacket and RxPacket; small neighbours share a datagram; messages are what one
// entry of sendmmsg or recvmmsg carries: a datagram or a run of them.
struct UdpCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t bytes_sent = 0;  // with headers and framing, without UDP's and IP's
  std::uint64_t messages_sent = 0;
  std::uint64_t send_calls = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t receive_calls = 0;
  std::uint64_t poll_calls = 0;
  std::uint64_t back_pressure = 0;  // send() ended because a socket was full
  std::uint64_t pool_empty = 0;     // receive() did not read because all buffers were out
  std::uint64_t gso_fallbacks = 0;  // a joined message was refused, and its packets sent one by one
  std::uint64_t mtu_changes = 0;    // max_packet became smaller
  std::uint64_t fragmented = 0;     // packets longer than max_packet, sent since allow_fragments()
  std::uint64_t refused = 0;        // errors that the network reported to a socket (ECONNREFUSED and its like)
  // Lost, by cause: packets of those sent, datagrams of those received.
  std::uint64_t unreachable = 0;   // sent while the kernel had no way to the peer
  std::uint64_t kernel_drops = 0;  // arrived while a socket's buffer was full (SO_RXQ_OVFL)
  std::uint64_t strangers = 0;     // from an address that is no peer's
  std::uint64_t malformed = 0;     // not framed as frame.h says
  std::uint64_t truncated = 0;     // longer than a buffer
};

class UdpIo final : public PacketIo {
 public:
  static constexpr std::uint8_t kMostPaths = 32;
  struct Offloads {
    bool gso = false;
    bool gro = false;
  };

  static Result<std::unique_ptr<UdpIo>> open(const UdpOptions& options);

  const UdpAddress& local() const { return local_; }
  // As many ports as this end has paths. May lower capabilities().max_packet to what the route to it takes.
  Result<PeerId> add_peer(const UdpAddress& address);
  std::size_t peers() const { return peers_.size(); }

  const UdpCounters& counters() const { return counters_; }
  Offloads offloads() const { return {gso_, gro_}; }
  std::size_t receive_buffer_bytes() const {
    return receive_buffer_bytes_;
  }  // granted per socket, as the kernel counts

  // max_packet becomes smaller when a path's MTU does, never larger: send() then returns kInvalidArgument for a packet
  // that no longer fits, and the caller asks again.
  const Capabilities& capabilities() const override { return capabilities_; }
  const LinkProfile& link() const override { return link_; }
  AddressBlob local_address() const override;
  Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(PeerId peer) override;
  // They leave as IP fragments, of which the loss of one loses all. Packets within max_packet are not affected.
  bool allow_fragments() override;
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;  // host memory only
  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  // At most one recvmmsg per path and call.
  Result<std::size_t> receive(std::span<RxPacket> packets) override;
  void release(std::span<const RxPacket> packets) override;
  // The kernel copies to where it is told when the packet is read, whatever it holds: no hint is accepted.
  PlacementHint expect(PeerId, std::uint64_t, const MemorySlice&, std::size_t) override { return {}; }
  void cancel(PlacementHint) override {}
  std::uint64_t unsent_bytes() const override;
  void tell_waits() override;
  std::span<const int> ready_fds() const override { return fds_; }
  // While all receive buffers are out nothing can be received: it then waits for room to send, or `timeout`.
  void wait(Duration timeout) override;
  std::string describe() const override;

 private:
  struct Path {
    PathSocket socket;
    std::uint32_t drops = 0;  // the kernel's counter as last told
  };
  // A message that was read and not yet given out whole; it holds its buffer.
  struct Waiting {
    Arrival arrival;
    std::uint32_t next = 0;  // offset of the next packet
    PeerId peer = 0;
    std::uint8_t path = 0;
    TimePoint time{};
    Duration waited{};
  };
  enum class Failure : std::uint8_t { kAgain, kFull, kJoined, kTooLong, kNoRoute, kMemory, kDevice };

  UdpIo(const UdpOptions& options, const IpAddress& local);
  Result<void> open_sockets(const UdpOptions& options);
  void set_limits(const UdpOptions& options, const Link& link);
  bool lower_mtu(std::size_t mtu);
  bool lower_to_route(const SocketAddress& peer);
  std::size_t most() const { return fragments_ ? once_ : capabilities_.max_packet; }
  bool fits(const TxPacket& packet) const {
    return packet.header.bytes().size() + packet.payload.length <= capabilities_.max_packet;
  }

  // Null for a packet that can never be sent; refusal() says why.
  const SocketAddress* destination(const TxPacket& packet) const;
  std::string refusal(const TxPacket& packet) const;
  // Fills tx_ from the front with packets of one path; leaves it empty if the first can never be sent.
  void fill_batch(std::span<const TxPacket> packets);
  Failure classify(int error) const;
  // The first message of tx_, which begins with `first`, failed. How many packets are done with; nothing: stop.
  Result<std::optional<std::size_t>> on_failure(int error, const TxPacket& first);
  Result<std::optional<std::size_t>> on_too_long(const TxPacket& first);
  std::size_t after_sent(std::size_t messages);  // how many packets these were
  void pass_singly(std::size_t packets);

  std::uint32_t ready_paths();
  Result<void> read_path(std::uint8_t path, std::size_t most);
  // What a recvmsg or recvmmsg that failed with `error` means: nothing, or the device's end.
  Result<void> on_receive_error(int error);
  void accept(std::uint8_t path, const Arrival& arrival, const SocketAddress& from, TimePoint now, Duration waited);
  std::size_t deliver(std::span<RxPacket> packets);

  SystemClock clock_;
  UdpAddress local_;
  const bool apart_;
  Capabilities capabilities_;
  LinkProfile link_;
  UdpCounters counters_;
  PeerTable<UdpPeer> peers_{"udp"};
  std::vector<Path> paths_;
  std::vector<int> fds_;  // of their sockets
  std::size_t receive_buffer_bytes_ = 0;

  std::size_t once_ = 0;    // max_packet at open
  bool fragments_ = false;  // what is longer than max_packet may leave in fragments

  bool gso_ = false;
  bool gro_ = false;
  TxBatch tx_;
  std::size_t singly_ = 0;    // packets to be sent without joining: those of a joined message that was refused
  bool gso_suspect_ = false;  // if they pass, joining is what this device cannot do
  bool retried_ = false;      // the front packet was refused for what may have passed since, and gets a second try
  std::uint32_t full_ = 0;    // paths that the latest send() found full, one bit each
  bool no_memory_ = false;    // the same for want of memory, which no event ends

  std::optional<BufferPool> pool_;
  RxBatch rx_;
  Ring<Waiting> waiting_;
  std::uint8_t next_path_ = 0;  // round robin
};

}  // namespace clustar::transport::io::udp
