// The send queue of one NIC: transports take their next bytes from here, so that the NIC's policy sees, and orders, all
// that waits. Pure: no socket, clock, thread; the owner locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/api/flow_tag.h"
#include "transport/api/send_policy.h"
#include "transport/base/indexed_heap.h"
#include "transport/base/time.h"
#include "transport/message/flow_table.h"

namespace clustar::transport {

class SendQueue {
 public:
  using ConnectionId = std::uint32_t;  // what can be blocked as a whole

  // What a connection's flows have in common.
  struct ConnectionFacts {
    std::uint32_t peer = 0;  // FlowKey::peer
    std::uint32_t job = 0;   // FlowKey::job
  };

  struct Chunk {
    ConnectionId connection;
    std::uint64_t cookie;  // the owner's name for the message
    std::uint64_t offset;
    std::uint64_t length;  // 0 only for an empty message
    bool last;
    std::uint32_t item;  // for commit()
    std::uint8_t level;  // SendPolicy::Turn::level

    // At most so many bytes (> 0) of it.
    void shorten(std::uint64_t most) {
      if (length <= most) return;
      length = most;
      last = false;
    }
  };

  explicit SendQueue(std::unique_ptr<SendPolicy> policy) : flows_(std::move(policy)) {}

  ConnectionId add_connection() { return add_connection(ConnectionFacts{}); }
  ConnectionId add_connection(const ConnectionFacts& facts);
  // Forgets the connection and all that it queued. The id may be given out again.
  void remove_connection(ConnectionId connection, TimePoint now);

  void push(ConnectionId connection, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes, TimePoint now);

  // The next chunk, at most `max_chunk` (> 0) bytes, of the first message whose connection is not blocked and whose
  // flow is not held back, unless the policy's gate is before it. Nothing changes until commit(); asking again at the
  // same time gives the same answer.
  std::optional<Chunk> next(std::uint64_t max_chunk, TimePoint now);
  // `chunk` is the answer of the latest next(), or shorter: it was handed to the network.
  void commit(const Chunk& chunk, TimePoint now);
  // When the first flow that is held back may go, whatever else waits, or the latest next() found the gate shut and it
  // is to be asked again; max(): neither.
  TimePoint next_release() const { return std::min(flows_.next_release(), shut_until_); }

  // A blocked connection is passed over: back-pressure of one connection never holds up the others.
  void block(ConnectionId connection);
  void unblock(ConnectionId connection);

  // False: by arrival, and nothing waits for a turn (SendPolicy::orders).
  bool orders() const { return flows_.orders(); }
  SendPolicy::RunAhead run_ahead(TimePoint now) const { return flows_.run_ahead(now); }
  // False: nobody wants to know the time either (SendPolicy::hears).
  bool hears() const { return flows_.hears(); }
  std::size_t size() const { return size_; }
  std::uint64_t queued_bytes() const { return queued_bytes_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Item {
    ConnectionId connection = 0;
    FlowTable::FlowId flow = 0;
    std::uint64_t cookie = 0;
    std::uint64_t bytes = 0;
    std::uint64_t sent = 0;
    std::uint64_t rank = 0;  // of its flow, when it was linked
    std::uint64_t arrival = 0;
    bool used = false;
    bool linked = false;                           // in its connection; otherwise its flow is held back
    std::uint32_t prev = kNone, next = kNone;      // in its connection
    std::uint32_t earlier = kNone, later = kNone;  // of its flow
  };
  // Each connection keeps its items in sending order; ready_ is a heap of the connections that are neither blocked nor
  // empty, by their first items, so thousands of connections cost a logarithm and the others nothing. Within a rank,
  // flows share by their ties, which grow: a connection's `tie` may be too small, and is mended when it comes to the
  // top.
  struct Connection {
    bool used = false;
    bool blocked = false;
    ConnectionFacts facts;
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint64_t tie = 0;
  };

  bool goes_before(std::uint32_t a, std::uint32_t b) const;
  void link(std::uint32_t index);
  void unlink(std::uint32_t index);
  void erase(std::uint32_t index, TimePoint now);
  void join_flow(std::uint32_t index);
  void leave_flow(std::uint32_t index);
  void move_flow(FlowTable::FlowId flow);
  bool mend_top();
  void update_ready(ConnectionId connection);
  auto connection_before() const {
    return [this](ConnectionId a, ConnectionId b) { return goes_first(a, b); };
  }
  bool goes_first(ConnectionId a, ConnectionId b) const;

  FlowTable flows_;
  std::vector<Item> items_;  // slab
  std::vector<std::uint32_t> free_items_;
  struct Ends {
    std::uint32_t first = kNone, last = kNone;
  };
  std::vector<Ends> of_flow_;  // its items, by FlowId
  std::vector<Connection> connections_;
  IndexedHeap ready_;
  std::uint64_t next_arrival_ = 0;
  std::size_t size_ = 0;
  std::uint64_t queued_bytes_ = 0;
  TimePoint shut_until_ = TimePoint::max();  // the gate; max(): it is open
};

}  // namespace clustar::transport
