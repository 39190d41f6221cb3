// A channel in the making: its memory and its queue pairs, which are connected by a thread of their own, because the
// kernel may wait a second for ARP and poll() must not.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "transport/verbs/memory.h"
#include "transport/verbs/queue_pairs.h"

namespace clustar::transport::verbs {

// The channel's own memory: what the peer writes (RingLayout or LandingLayout), then what is only sent from.
struct ChannelMemory {
  // A message header per request, at the sender.
  static constexpr std::size_t kSenderStaging = kMaxSlots * MessageHeader::kSize;
  // The ring as it should be in the sender's memory, and the count behind it, at the receiver.
  static constexpr std::size_t kReceiverStaging = RingLayout::kSize;

  OwnMemory memory{};
  std::size_t staging = 0;  // offset
};

class Wiring {
 public:
  // `pairs`: queue pairs, 1 .. kMaxQueuePairs. Does not block.
  static Result<std::unique_ptr<Wiring>> make(Nic& nic, Side side, std::size_t count);
  ~Wiring();  // waits for the thread: 1 s at most
  Wiring(const Wiring&) = delete;
  Wiring& operator=(const Wiring&) = delete;

  // For the peer.
  Contact contact() const;
  // Begins to connect with the peer's queue pairs; those that the peer has not are given up.
  Result<void> start(const Contact& peer, int traffic_class);
  // True once all are connected and receives are posted.
  Result<bool> poll();
  // The parts, when done.
  QueuePairs take_pairs() { return std::move(pairs_); }
  ChannelMemory take_memory() { return std::move(memory_); }
  const Contact& peer() const { return peer_; }

  // What a channel of this NIC has.
  static std::size_t pairs_of(const Nic& nic);

 private:
  Wiring(Nic& nic, Side side, QueuePairs pairs) : nic_(nic), side_(side), pairs_(std::move(pairs)) {}
  Result<void> connect(int traffic_class);

  Nic& nic_;
  const Side side_;
  ChannelMemory memory_{};
  QueuePairs pairs_;
  Contact peer_{};
  // Written by the thread before `connected_`, read after it.
  Result<void> result_{};
  std::atomic<bool> connected_{false};
  std::thread thread_;
};

}  // namespace clustar::transport::verbs
