// The sending side of one NIC: what all its connections have to send, and the engine that hands it to their wires in
// the order of the NIC's policy.
//
// Thread rule: the engine and the wires attached to it are guarded by mutex(). A thread that sends or tests only tries
// the lock and comes back later, so no call waits for another thread's; attach and detach (connect, close) wait.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/api/context.h"
#include "transport/base/time.h"
#include "transport/message/ahead_meter.h"
#include "transport/message/drain_limit.h"
#include "transport/message/send_queue.h"

namespace clustar::transport {

// How one connection puts chunks on its network. All calls come from SendEngine::pump().
class ChunkWire {
 public:
  // Of the message: so many bytes (> 0) at most make one chunk.
  virtual std::uint64_t chunk_limit(std::uint64_t cookie) const = 0;
  // False: there is no room for the chunk now. The connection is passed over until it is unblocked.
  virtual bool start_chunk(const SendQueue::Chunk& chunk) = 0;
  // Of the chunks that were taken: bytes that nothing overtakes any more and that have not left. It looks what has.
  virtual std::uint64_t ahead_bytes() = 0;
  // What start_chunk() gathered is to leave: no more comes for now.
  virtual void end_of_pump() {}

 protected:
  ~ChunkWire() = default;
};

class SendEngine {
 public:
  struct Limits {
    Duration ahead{0};                   // SendOrderSettings::ahead_us
    std::uint64_t bytes_per_second = 0;  // of the NIC; 0: not known
    // One pump hands on no more, so that a very long message does not keep its caller.
    std::uint64_t pump_bytes = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t chunk = kOrderedChunk;  // the longest where the policy orders
  };

  SendEngine(const Clock& clock, std::unique_ptr<SendPolicy> policy, const Limits& limits)
      : clock_(clock),
        pump_bytes_(limits.pump_bytes),
        queue_(std::move(policy)),
        chunk_(limits.chunk),
        ahead_(send_ahead_bytes(limits.ahead, limits.bytes_per_second, queue_.orders(), limits.chunk)),
        fill_(bytes_in(limits.ahead, limits), bytes_in(kMostToFill, limits)),
        free_(bytes_in(std::max(limits.ahead, kAheadAlone), limits)),
        timed_(queue_.hears()) {}

  std::mutex& mutex() { return mutex_; }
  // What was pushed and not handed on. Any thread.
  std::uint64_t queued_bytes() const {
    const std::lock_guard lock(mutex_);
    return queue_.queued_bytes();
  }
  // Under an order that is strict about what is ahead of it: chunks are chunk() at most, where they can be. Where the
  // policy lets it run ahead (SendPolicy::RunAhead) that is what the line takes between two pumps, though for no longer
  // than kMostToFill beside others; a flow that is alone has what the line carries in kAheadAlone at least, in chunks
  // as long. Whatever comes next waits for so much of the line once.
  bool strict() const { return ahead_.bounded(); }
  std::uint64_t chunk() const { return chunk_ + longer_; }
  static constexpr Duration kAheadAlone = std::chrono::microseconds(200);
  static constexpr Duration kMostToFill = std::chrono::milliseconds(1);

  SendQueue::ConnectionId attach(ChunkWire& wire, const SendQueue::ConnectionFacts& facts);
  // Forgets what the wire was still to send.
  void detach(SendQueue::ConnectionId connection);

  // The following need mutex() held.
  void push(SendQueue::ConnectionId connection, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes) {
    queue_.push(connection, cookie, flow, bytes, now());
  }
  void unblock(SendQueue::ConnectionId connection) { queue_.unblock(connection); }
  // Hands on chunks until all is sent, every connection with work is blocked, or as much is ahead as may be. Where that
  // is bounded, a connection of which nothing leaves is passed over until it does: what it has is all that it may keep
  // from the others, for AheadMeter::kPatience.
  void pump();

 private:
  TimePoint now() const { return timed_ ? clock_.now() : TimePoint{}; }
  bool has_room(TimePoint at);
  void set_more(TimePoint at);
  static std::uint64_t bytes_in(Duration time, const Limits& limits) {
    return send_ahead_bytes(time, limits.bytes_per_second, true, limits.chunk);
  }

  const Clock& clock_;
  const std::uint64_t pump_bytes_;
  mutable std::mutex mutex_;
  SendQueue queue_;
  const std::uint64_t chunk_;
  AheadMeter ahead_;
  DrainLimit fill_, free_;       // of each RunAhead
  DrainLimit* limit_ = nullptr;  // as of the latest pump, and so are:
  std::uint64_t more_ = 0;       // bytes that may be ahead beyond the bound
  std::uint64_t longer_ = 0;     // and of a chunk
  const bool timed_;
  std::vector<ChunkWire*> wires_;    // by connection
  std::vector<ChunkWire*> touched_;  // by the pump that runs
};

}  // namespace clustar::transport
