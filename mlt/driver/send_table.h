// What is being sent by all connections of a device: where the payload is, of which flow it is, and the turn that the
// device's policy gives it. All calls with the engine's lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mlt/core/endpoint.h"
#include "transport/api/send_policy.h"
#include "transport/base/time.h"
#include "transport/io/packet_io.h"
#include "transport/message/flow_table.h"

namespace clustar::mlt::driver {

// A message, as a channel hands it over.
struct OutboundMessage {
  const transport::io::Mr* memory = nullptr;  // until the message is done, null of an empty one
  std::size_t offset = 0;
  std::uint32_t length = 0;
  std::int32_t tag = 0;
  const transport::FlowTag* flow = nullptr;
};

class SendTable {
 public:
  using ConnectionId = Endpoint::ConnectionId;

  explicit SendTable(std::unique_ptr<transport::SendPolicy> policy) : flows_(std::move(policy)) {}

  // `peer`, `job`: what all its flows have in common (transport::FlowKey).
  void open(ConnectionId connection, std::uint32_t peer, std::uint32_t job, std::size_t max_messages);
  // Of messages that are not done nothing more is sent.
  void close(ConnectionId connection, TimePoint now);

  // Sends it by `core`. nullopt: as Endpoint::send.
  std::optional<std::uint32_t> send(Endpoint& core, ConnectionId connection, const OutboundMessage& message,
                                    SendTerms terms, TimePoint now);
  transport::io::MemorySlice payload(ConnectionId connection, const Transmit& transmit) const {
    const Entry& entry = at(connection, transmit.message);
    return {entry.memory, entry.offset + transmit.offset, transmit.length};
  }
  // So much of it left for the first time.
  void sent(Endpoint& core, ConnectionId connection, std::uint32_t message, std::uint32_t bytes, TimePoint now);
  // It is done: its memory is not read any more. Its length.
  std::uint32_t finish(ConnectionId connection, std::uint32_t message, TimePoint now);

  // Turns that are others by now, because of the time or of what the policy learned elsewhere.
  void update_turns(Endpoint& core, TimePoint now);

  // Which ranks may not leave now, and until when.
  transport::SendPolicy::Gate gate(TimePoint now) { return flows_.gate(now); }

  bool orders() const { return flows_.orders(); }
  bool has_policy() const { return flows_.orders() || flows_.hears(); }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Entry {
    bool used = false;
    std::uint32_t message = 0;
    const transport::io::Mr* memory = nullptr;
    std::size_t offset = 0;
    std::uint32_t length = 0;
    std::uint32_t unsent = 0;  // bytes that never left
    transport::FlowTable::FlowId flow = 0;
    std::uint64_t earlier = kNone, later = kNone;  // of the flow
  };
  struct Connection {
    std::uint32_t peer = 0;
    std::uint32_t job = 0;
    std::vector<Entry> entries{};  // by message, modulo their number: the core has no more at a time
  };
  struct Ends {
    std::uint64_t first = kNone, last = kNone;
  };

  const Entry& at(ConnectionId connection, std::uint32_t message) const {
    const std::vector<Entry>& entries = connections_[connection].entries;
    return entries[message % entries.size()];
  }
  Entry& at(ConnectionId connection, std::uint32_t message) {
    return const_cast<Entry&>(std::as_const(*this).at(connection, message));
  }
  Entry& entry(std::uint64_t key) { return at(static_cast<ConnectionId>(key >> 32), static_cast<std::uint32_t>(key)); }
  static std::uint64_t key_of(ConnectionId connection, std::uint32_t message) {
    return std::uint64_t{connection} << 32 | message;
  }
  Turn turn_of(transport::FlowTable::FlowId flow) const;
  void set_turns(Endpoint& core, transport::FlowTable::FlowId flow, TimePoint now);
  void join_flow(std::uint64_t key);
  void leave_flow(std::uint64_t key);

  transport::FlowTable flows_;
  std::vector<Connection> connections_;  // by the core's number
  std::vector<Ends> of_flow_;            // its messages, by FlowId
};

}  // namespace clustar::mlt::driver
