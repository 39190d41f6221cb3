// The queue pairs of one channel, spread over the NIC's ports, and their completion queues.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/io/verbs/completion_queue.h"
#include "transport/io/verbs/queue_pair.h"
#include "transport/verbs/nic.h"

namespace clustar::transport::verbs {

// What a work request's id says. The upper half is free of it in a failed completion, too, unlike its opcode.
struct WorkId {
  std::uint32_t pair = 0;
  std::uint32_t number = 0;  // of a send
  bool receive = false;

  static WorkId of(std::uint64_t id) {
    return {static_cast<std::uint32_t>(id >> 32 & 0xff), static_cast<std::uint32_t>(id), id >> 63 != 0};
  }
  std::uint64_t id() const { return std::uint64_t{receive} << 63 | std::uint64_t{pair} << 32 | number; }
};

enum class Side : std::uint8_t { kSender, kReceiver };

class QueuePairs {
 public:
  static constexpr std::uint32_t kSendDepth = 128;     // work requests of the sender, per queue pair
  static constexpr std::uint32_t kDescribeDepth = 64;  // of the receiver
  // Immediates that may be under way to one queue pair: a stripe for every slot, eager messages, the ring's accounts.
  // With several stripes of a message on one there may be more; then the sender's NIC waits a little (RNR).
  static constexpr std::uint32_t kRecvDepth = kMaxSlots + kEagerSlots + 64;
  // A header, and the header with the payload of a small message, travel in the work request.
  static constexpr std::uint32_t kInlineBytes = 128;

  // `count` queue pairs in INIT: number i on port i modulo the ports.
  static Result<QueuePairs> make(const Nic& nic, Side side, std::size_t count);

  std::size_t size() const { return pairs_.size(); }
  // Those beyond are not used: the peer has fewer.
  void cut(std::size_t count) { pairs_.resize(count); }
  // Adds ports and queue pairs to what the peer must know.
  void describe(Contact* contact) const;
  // Connects all with the peer's, which are as many. Blocks up to 1 s per unreachable peer, for ARP.
  Result<void> connect(const Contact& peer, int traffic_class);

  std::size_t port(std::size_t pair) const { return pairs_[pair].port; }
  std::uint32_t peer_port(std::size_t pair) const { return pairs_[pair].peer_port; }
  const io::verbs::QueuePair& pair(std::size_t pair) const { return *pairs_[pair].pair; }
  std::uint32_t inline_bytes() const { return inline_bytes_; }

  Result<void> post(std::size_t pair, ibv_send_wr& first) const { return pairs_[pair].pair->post(first); }
  // `count` receives without memory, for immediates.
  Result<void> post_receives(std::size_t pair, std::uint32_t count) const;
  // Of all queue pairs, up to out.size().
  Result<std::size_t> poll(std::span<ibv_wc> out);
  // Nothing moves on it any more.
  void stop(std::size_t pair) { (void)pairs_[pair].pair->to_error(); }

 private:
  struct Line {
    std::size_t port = 0;
    std::uint32_t psn = 0;
    std::uint32_t peer_port = 0;
    std::optional<io::verbs::QueuePair> pair{};
  };

  explicit QueuePairs(const Nic& nic) : nic_(&nic) {}

  const Nic* nic_;
  std::vector<std::unique_ptr<io::verbs::CompletionQueue>> queues_;  // one per port in use
  std::vector<Line> pairs_;
  std::uint32_t inline_bytes_ = kInlineBytes;
  std::size_t next_queue_ = 0;
};

}  // namespace clustar::transport::verbs
