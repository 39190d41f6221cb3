// io::PacketIo over verbs UC: payload whose place the receiver has told is written straight there, one packet per
// RDMA WRITE WITH IMMEDIATE; everything else goes by another PacketIo, and so do the headers of what is written.
//
// Thread rule: as PacketIo's; the accessors belong to the thread that sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/ring.h"
#include "transport/base/system_clock.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/registered.h"
#include "transport/io/verbs/uc/join.h"
#include "transport/io/verbs/uc/landings.h"
#include "transport/io/verbs/uc/outbox.h"
#include "transport/io/verbs/uc/pair.h"
#include "transport/io/verbs/uc/peer.h"
#include "transport/io/verbs/uc/windows.h"
#include "transport/io/verbs/uc/writer.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs::uc {

struct UcOptions {
  std::uint8_t port = 1;              // of the device
  std::uint32_t most_pairs = 64;      // in each direction, of all peers
  std::uint32_t send_requests = 128;  // of a pair
  std::uint32_t receives = 8192;      // for all pairs together: a write that finds none is lost
  std::uint32_t headers = 4096;       // of written packets, until those are released
  std::uint32_t join_window = 4096;   // a power of two: see Join
  std::uint32_t windows = 512;        // landings at a time
  FixedMarks marks{};
  Duration pair_pause = std::chrono::seconds(10);  // until a pair that failed is made again
  // Told once each for what stops pairs or windows from working: everything goes on by datagrams.
  std::function<void(const std::string&)> warn{};
};

// Since open.
struct UcCounters {
  std::uint64_t packets_written = 0;  // sent into place
  std::uint64_t datagrams_sent = 0;   // of the caller's packets
  std::uint64_t packets_placed = 0;   // received so
  std::uint64_t datagrams_received = 0;
  std::uint64_t pairs_up = 0;  // that wrote or could have
  std::uint64_t pairs_failed = 0;
  std::uint64_t grants_told = 0;   // with repetitions
  std::uint64_t grants_heard = 0;  // without
  std::uint64_t unplaced = 0;      // whole packets of landings that are gone, or of segments that were returned
  std::uint64_t malformed = 0;     // datagrams that no sender of ours makes
  std::uint64_t stale = 0;         // of another session
  std::uint64_t unsure = 0;        // landings whose end was only certain with that of all pairs
};

class UcIo final : public PacketIo {
 public:
  // What memory must be registered for, so that it can be a landing.
  static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
  static constexpr std::uint8_t kMostPaths = 32;

  // `datagrams`: its reg_mr gives a Registered of `domain` with kAccess. The device and the domain outlive this; they
  // may be the datagrams' own. Error: the device refuses something, or is asked for too much.
  static Result<std::unique_ptr<UcIo>> open(std::unique_ptr<PacketIo> datagrams, const Device& device,
                                            const ProtectionDomain& domain, const GidEntry& gid,
                                            const UcOptions& options);
  ~UcIo() override;

  // `peer`: as the datagrams number it, which must have been told first; `gid`: of its port. Until both sides have
  // added each other everything goes by datagrams.
  void add_peer(PeerId peer, const Gid& gid);
  // The same, and the datagrams are told: a peer of theirs, whose addresses are UdAddress's.
  Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) override;
  // Its landings are cancelled. The datagrams are to be told afterwards, which remove_peer() does.
  void forget_peer(PeerId peer);
  Result<void> remove_peer(PeerId peer) override;

  PacketIo& datagrams() { return *datagrams_; }
  const UcCounters& counters() const { return counters_; }
  Join::Counters join_counters() const;  // of all peers that are there
  std::string describe() const override;
  // Pairs on which the peer can be written to.
  std::size_t pairs_up(PeerId peer) const;

  // Readable when a write came, which its header may wait for; ready_fds() are this and the datagrams'.
  int readable_fd() const { return recv_queue_.fd(); }
  // Before a thread sleeps on it: how long it may at most; 0: something can be received now.
  Result<Duration> arm();

  const Capabilities& capabilities() const override { return capabilities_; }
  const LinkProfile& link() const override { return datagrams_->link(); }
  Reach reach() const override { return datagrams_->reach(); }
  AddressBlob local_address() const override { return datagrams_->local_address(); }
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  Result<std::size_t> receive(std::span<RxPacket> packets) override;
  void release(std::span<const RxPacket> packets) override;
  // Not accepted: slot 0 or one that has a landing, segments longer than the MTU, a peer that is not there, no window.
  PlacementHint expect(PeerId peer, std::uint64_t slot, const MemorySlice& target, std::size_t segment_bytes) override;
  void cancel(PlacementHint landing) override;
  void quiesce() override;
  MemoryWriter* writer() override { return datagrams_->writer(); }
  std::span<const int> ready_fds() const override { return fds_; }
  Duration before_sleep() override;
  void wait(Duration timeout) override;

 private:
  struct Parts;
  enum class Way : std::uint8_t { kWritten, kDatagram, kFull };

  UcIo(std::unique_ptr<PacketIo> datagrams, const Device& device, const UcOptions& options, Parts parts);

  // Sending.
  Way write(const TxPacket& packet, std::uint64_t taken);
  OutPair* pair_for(Peer& peer, std::uint8_t key, std::uint8_t dscp);
  void post_chain();
  // `taken`: as write()'s, of the first one.
  Result<std::size_t> send_datagrams(std::span<const TxPacket> packets, std::uint64_t taken, bool& full);
  bool may_take(std::uint64_t number);
  bool writable(const TxPacket& packet);

  // Receiving.
  Result<void> step(TimePoint now);
  Result<void> take_writes();
  void post_receives();
  void take_pair_jobs(TimePoint now);
  void on_pair_job(PairJob job, TimePoint now);
  void tell(TimePoint now);
  std::size_t deliver(std::span<RxPacket> packets, TimePoint now);
  void on_control(const RxPacket& packet, TimePoint now);
  void on_body(Peer& peer, const Preamble& preamble, const RxPacket& packet, TimePoint now);
  void on_hello(Peer& peer, const PairEnd& theirs);
  void on_welcome(Peer& peer, const PairEnd& theirs);
  void on_headers(Peer& peer, const Preamble& preamble, const RxPacket& packet);
  void on_missing_write(Peer& peer, std::uint8_t key, bool first_of_batch);
  void fail_pair(Peer& peer, std::uint8_t key, OutPair& pair, const std::string& why);
  void reset(Peer& peer);
  void say(const Peer& peer, Kind kind, std::span<const std::byte> body, std::uint8_t path = 0,
           std::uint16_t number = 0);
  void warn_once(bool& said, const std::string& what);
  Peer* find(PeerId peer);
  Join& join_of(Peer& peer);
  const Registered* registered(const Mr* mr) const;  // null: not of this domain
  Duration until_due(TimePoint now) const;

  const UcOptions options_;
  const SystemClock clock_;
  const Device& device_;
  std::unique_ptr<PacketIo> datagrams_;
  Capabilities capabilities_;
  std::vector<int> fds_;
  UcCounters counters_;
  HeaderBlocks headers_;
  // Destroyed from below: windows and pairs before what they complete and receive into.
  CompletionQueue send_queue_;
  CompletionQueue recv_queue_;
  SharedReceiveQueue receives_;
  const PairParts pair_parts_;
  std::uint32_t missing_receives_;
  std::unique_ptr<Outbox> outbox_;
  std::unique_ptr<Windows> windows_;  // null: the device has none
  Landings landings_;
  std::map<std::uint32_t, MemorySlice> targets_;  // of landings, by id
  std::map<PeerId, Peer> peers_;
  std::map<std::uint32_t, std::pair<PeerId, std::uint8_t>> in_by_number_;  // queue pair -> peer and key
  std::size_t out_pairs_ = 0;
  TimePoint pairs_due_ = TimePoint::max();  // not after any pair's
  std::uint32_t next_session_ = 0;
  Writer writer_;
  PairMaker maker_;

  // The chain of writes that is being gathered, all on one pair.
  std::vector<Write> chain_;
  std::uint32_t chain_pair_ = 0;
  std::uint64_t chain_taken_ = 0;
  std::uint64_t taken_ = 0;

  // Datagrams whose payload may still be read, in groups: the first one of each, as taken_ counts, and how many the
  // device below must have taken until all of it are free.
  struct Group {
    std::uint64_t first = 0;
    std::uint64_t free_at = 0;
  };
  Ring<Group> datagram_groups_;

  std::vector<TxPacket> tx_;
  std::vector<RxPacket> rx_;  // datagrams; those from rx_next_ on are still to be looked at
  std::size_t rx_next_ = 0;
  std::size_t rx_count_ = 0;
  bool took_less_ = false;
  TimePoint expire_at_{};  // headers without writes
  bool pairs_said_ = false;
  bool windows_said_ = false;
  std::string problem_;  // the first that was said
};

}  // namespace clustar::transport::io::verbs::uc
