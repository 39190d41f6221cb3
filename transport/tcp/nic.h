// One network device: its send queue, and the engine that moves queued chunks to sockets.
// Thread rule: the engine belongs to whoever holds mutex(). Data-path callers only try the lock and come back later, so
// no call waits for another thread's system call; attach and detach (connect, close) wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "transport/api/ahead_meter.h"
#include "transport/api/send_queue.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/net/interfaces.h"
#include "transport/tcp/settings.h"

namespace clustar::transport::tcp {

class TcpSendChannel;

// What every part of one TcpTransport shares; the transport owns it and outlives them.
struct Context {
  Settings settings;
  const Clock& clock;
  Log log;
};

class Nic {
 public:
  Nic(net::Interface interface, const Context& context, std::unique_ptr<SendPolicy> policy);

  const net::Interface& interface() const { return interface_; }
  const Context& context() const { return context_; }
  // Under an order that is strict about what is ahead of it: chunks are kOrderedChunk at most.
  bool strict() const { return ahead_.bounded(); }
  std::mutex& mutex() { return mutex_; }

  SendQueue::LaneId attach(TcpSendChannel* channel, const SendQueue::LaneFacts& facts);
  void detach(SendQueue::LaneId lane);

  // The following need mutex() held.
  void push(SendQueue::LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes);
  void unblock(SendQueue::LaneId lane) { queue_.unblock(lane); }
  // What was pushed may wait for the next test of a request that is not done.
  void defer(std::uint64_t bytes) {
    deferred_.store(true, std::memory_order_relaxed);
    deferred_bytes_ += bytes;
    ++deferred_messages_;
  }
  std::uint64_t deferred_bytes() const { return deferred_bytes_; }
  std::size_t deferred_messages() const { return deferred_messages_; }
  // Hands chunks to sockets in the queue's order until all is sent, every lane with work is blocked, or as much is in
  // the kernel as may be under an order; bounded, so that a very long message does not keep the caller.
  void pump();

  // Needs no lock. For callers that test receives only.
  void pump_deferred();

  struct Counters {
    std::atomic<std::uint64_t> messages_sent{0};
    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<std::uint64_t> messages_received{0};
    std::atomic<std::uint64_t> bytes_received{0};
    std::atomic<std::uint64_t> early_messages{0};  // arrived before their receive: one copy more
    std::atomic<std::uint64_t> strangers{0};       // connections to our port that did not show the token
  };
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::uint64_t kPumpBytes = 8 << 20;

  bool has_room(TimePoint now);

  const net::Interface interface_;
  const Context& context_;
  Counters counters_;
  std::mutex mutex_;
  SendQueue queue_;
  AheadMeter ahead_;
  std::vector<TcpSendChannel*> lanes_;
  std::vector<TcpSendChannel*> touched_;  // by the pump that runs: what they gathered is still to be flushed
  std::atomic<bool> deferred_{false};
  std::uint64_t deferred_bytes_ = 0;  // since the latest pump
  std::size_t deferred_messages_ = 0;
};

}  // namespace clustar::transport::tcp
