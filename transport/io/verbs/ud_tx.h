// The sending half of a UdIo: its queue pairs, chains of requests, and what of them is outstanding.
//
// Every packet that is taken has a number, and packets up to `oldest` are finished. A header lives in slot
// number % window. The last request of each chain is signalled, so whatever was posted is told of.
//
// A queue pair that fails by what a link that is down may explain loses what it was given, and goes on: see UdCycle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/ring.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/completion_queue.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/queue_pair.h"
#include "transport/io/verbs/ud_cycle.h"
#include "transport/io/verbs/ud_peers.h"

namespace clustar::transport::io::verbs {

struct UdTxOptions {
  std::uint8_t port = 1;
  std::uint8_t paths = 8;
  std::uint32_t q_key = 0;
  std::uint32_t send_requests = 256;
  std::uint32_t window = 1024;
  std::uint32_t inline_bytes = 60;
  Duration link_patience = std::chrono::seconds(30);
};

class UdTx {
 public:
  // Queue pairs that can send and receive. The device, what they receive into, and where that completes, outlive this.
  static Result<std::unique_ptr<UdTx>> make(const Device& device, const ProtectionDomain& domain,
                                            const SharedReceiveQueue& receives, const CompletionQueue& received,
                                            const UdTxOptions& options);

  struct Taken {
    std::size_t packets = 0;  // from the front
    std::size_t lost = 0;     // of them, to peers that do not resolve
    std::size_t down = 0;     // of them, on queue pairs that have failed
    std::size_t chains = 0;
    std::size_t bytes = 0;
    bool unresolved = false;      // the next packet waits for its peer's handles, not for room
    std::uint64_t completed = 0;  // chains that had completed when room was last looked for
  };
  // Packets that were found valid, whose peers are known. Error: the device's end.
  Result<Taken> send(std::span<const TxPacket> packets, UdPeers& peers, TimePoint now);

  // A queue pair completed a receive as given back: it has failed, by whatever its sends will tell.
  void on_flushed_receive(std::uint8_t path);
  struct Trouble {
    std::uint64_t lost = 0;      // packets, by queue pairs that had failed
    std::uint64_t restarts = 0;  // of queue pairs
  };
  // To be called now and then, in the sending thread. Error: the device's end.
  Result<Trouble> maintain(TimePoint now);
  // Lets queue pairs go on that may. All receives that were complete at `swept`, which is not after `now`, have been
  // taken: a queue pair that starts over forgets what of its own is in a completion queue.
  void resume(TimePoint swept, TimePoint now);
  // How long the sending thread may leave that alone.
  Duration until_due();

  // Returns when no payload is read any more of what was taken before this call. Where the NIC does not finish within
  // 1 s, the queue pairs are stopped: with a port that is not active that is a loss, otherwise (a switch pauses it) the
  // device's end. Any thread.
  void quiesce();
  // Packets taken so far, and how many of those, from the first, are finished.
  std::uint64_t taken();
  std::uint64_t finished();
  // Chains that completed so far, also those that were not taken note of. An error is the next send()'s to tell.
  std::uint64_t completed();
  // Why nothing is sent any more: what send() would tell, for a caller that only receives. Any thread.
  std::optional<Error> lost();

  std::vector<std::uint32_t> numbers() const;
  const QueuePair& pair(std::uint8_t path) const { return paths_[path].pair; }
  std::optional<std::uint8_t> path_of(std::uint32_t queue_pair) const;
  CompletionQueue& completions() { return completions_; }  // to sleep on, in the sending thread

 private:
  static constexpr std::size_t kBurst = 64;
  struct Batch {  // a chain that was posted
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint32_t requests = 0;
  };
  struct PathState {
    QueuePair pair;
    UdCycle cycle;
    Ring<Batch> batches{};
    std::uint32_t outstanding = 0;
    std::uint32_t chained = 0;  // requests of the burst that is being made
    ibv_send_wr* first = nullptr;
    ibv_send_wr* last = nullptr;
    std::uint64_t first_number = 0;
    std::optional<Error> problem{};  // it has failed: nothing is posted until it goes on
    bool sends_only = false;         // only its sending has
    bool sent = false;               // something, since it went on
  };

  UdTx(const Device& device, const UdTxOptions& options, std::vector<std::byte> headers, MemoryRegion region,
       CompletionQueue completions);

  Result<void> start(QueuePair& pair) const;
  bool full(const PathState& path) const;
  std::size_t fill(std::span<const TxPacket> packets, UdPeers& peers, TimePoint now, Taken& taken);
  void chain(const TxPacket& packet, const UdPeers::Route& route, std::size_t index);
  Result<void> post(Taken& taken);
  Result<void> reap();
  void complete(std::uint64_t id);
  void stop();
  Error stuck() const;
  bool port_active() const;
  void fail_path(PathState& path, const Error& why);
  void on_failed(PathState& path, const ibv_wc& completion);
  void notice(PathState& path, TimePoint now);

  const Device& device_;
  const UdTxOptions options_;
  std::vector<std::byte> headers_;
  MemoryRegion region_;  // of them
  CompletionQueue completions_;
  std::mutex mutex_;  // of what follows: ~Mr looks for completions, too
  std::vector<PathState> paths_;
  std::uint64_t next_ = 0;
  std::uint64_t oldest_ = 0;
  std::uint64_t completed_ = 0;
  std::array<ibv_send_wr, kBurst> requests_{};
  std::array<std::array<ibv_sge, 2>, kBurst> pieces_{};
  bool troubled_ = false;  // any queue pair
  Trouble trouble_;
  std::optional<Error> lost_;
  bool given_up_ = false;  // queue pairs were stopped, and what was posted did not complete even so
};

}  // namespace clustar::transport::io::verbs
