#include "transport/message/send_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace clustar::transport {

SendQueue::ConnectionId SendQueue::add_connection(const ConnectionFacts& facts) {
  auto free = std::find_if(connections_.begin(), connections_.end(),
                           [](const Connection& connection) { return !connection.used; });
  if (free == connections_.end()) free = connections_.emplace(connections_.end());
  *free = Connection{};
  free->used = true;
  free->facts = facts;
  return static_cast<ConnectionId>(free - connections_.begin());
}

void SendQueue::remove_connection(ConnectionId connection, TimePoint now) {
  assert(connection < connections_.size() && connections_[connection].used);
  while (connections_[connection].head != kNone) erase(connections_[connection].head, now);
  for (std::uint32_t i = 0; i < items_.size() && size_ > 0; ++i) {  // those whose flows are held back
    if (items_[i].used && items_[i].connection == connection) erase(i, now);
  }
  connections_[connection].used = false;
}

void SendQueue::push(ConnectionId connection, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes,
                     TimePoint now) {
  assert(connection < connections_.size() && connections_[connection].used);
  std::uint32_t index;
  if (free_items_.empty()) {
    index = static_cast<std::uint32_t>(items_.size());
    items_.emplace_back();
  } else {
    index = free_items_.back();
    free_items_.pop_back();
  }
  const ConnectionFacts& facts = connections_[connection].facts;
  Item& item = items_[index];
  item = Item{};
  item.used = true;
  item.connection = connection;
  item.cookie = cookie;
  item.bytes = bytes;
  item.arrival = next_arrival_++;
  item.flow = flows_.open(FlowKey::of(flow, facts.peer, facts.job, bytes), flow, bytes, now);
  if (flows_.hears()) join_flow(index);
  if (!flows_.held(item.flow)) {
    link(index);
    update_ready(connection);
  }
  ++size_;
  queued_bytes_ += bytes;
}

std::optional<SendQueue::Chunk> SendQueue::next(std::uint64_t max_chunk, TimePoint now) {
  assert(max_chunk > 0);
  while (const auto flow = flows_.changed(now)) move_flow(*flow);
  shut_until_ = TimePoint::max();
  if (ready_.empty()) return std::nullopt;
  while (mend_top()) {
  }
  const ConnectionId connection = ready_.top();
  const Item& item = items_[connections_[connection].head];
  if (const SendPolicy::Gate gate = flows_.gate(now); item.rank >= gate.rank) {
    shut_until_ = gate.until;
    return std::nullopt;
  }
  const std::uint64_t remaining = item.bytes - item.sent;
  const std::uint64_t length = std::min(remaining, max_chunk);
  return Chunk{connection,
               item.cookie,
               item.sent,
               length,
               length == remaining,
               connections_[connection].head,
               flows_.level(item.flow)};
}

void SendQueue::commit(const Chunk& chunk, TimePoint now) {
  Item& item = items_[chunk.item];
  assert(item.connection == chunk.connection && item.cookie == chunk.cookie && item.sent == chunk.offset);
  item.sent += chunk.length;
  queued_bytes_ -= chunk.length;
  const FlowTable::FlowId flow = item.flow;
  const bool moves = flows_.sent(flow, chunk.length, now);
  if (chunk.last) erase(chunk.item, now);
  if (moves) move_flow(flow);
}

void SendQueue::block(ConnectionId connection) {
  connections_[connection].blocked = true;
  update_ready(connection);
}

void SendQueue::unblock(ConnectionId connection) {
  connections_[connection].blocked = false;
  update_ready(connection);
}

// Its items where they belong by what the policy says of it. A tie that grew moves nothing: mend_top(). One that
// shrank, for the flow has no share any more, would keep its connection from the top.
void SendQueue::move_flow(FlowTable::FlowId flow) {
  const bool held = flows_.held(flow).has_value();
  const FlowPlace place = flows_.place(flow);
  for (std::uint32_t i = of_flow_[flow].first; i != kNone; i = items_[i].later) {
    Item& item = items_[i];
    if (item.linked == !held && item.rank == place.rank) {
      const Connection& connection = connections_[item.connection];
      if (connection.head == i && place.tie < connection.tie) update_ready(item.connection);
      continue;
    }
    if (item.linked) unlink(i);
    if (!held) link(i);
    update_ready(item.connection);
  }
}

// True: the top was older than it said, and another may be it.
bool SendQueue::mend_top() {
  Connection& connection = connections_[ready_.top()];
  const std::uint64_t tie = flows_.place(items_[connection.head].flow).tie;
  if (tie == connection.tie) return false;
  connection.tie = tie;
  const ConnectionId top = ready_.top();
  ready_.update(top, connection_before());
  return ready_.top() != top;
}

bool SendQueue::goes_before(std::uint32_t a, std::uint32_t b) const {
  return std::tie(items_[a].rank, items_[a].arrival) < std::tie(items_[b].rank, items_[b].arrival);
}

// Walks from the tail: under FIFO and for late arrivals of equal rank that is one step.
void SendQueue::link(std::uint32_t index) {
  Item& item = items_[index];
  item.linked = true;
  item.rank = flows_.place(item.flow).rank;
  Connection& connection = connections_[item.connection];
  std::uint32_t before = connection.tail;
  while (before != kNone && goes_before(index, before)) before = items_[before].prev;
  item.prev = before;
  item.next = before == kNone ? connection.head : items_[before].next;
  (item.prev == kNone ? connection.head : items_[item.prev].next) = index;
  (item.next == kNone ? connection.tail : items_[item.next].prev) = index;
}

void SendQueue::unlink(std::uint32_t index) {
  Item& item = items_[index];
  item.linked = false;
  Connection& connection = connections_[item.connection];
  (item.prev == kNone ? connection.head : items_[item.prev].next) = item.next;
  (item.next == kNone ? connection.tail : items_[item.next].prev) = item.prev;
}

void SendQueue::erase(std::uint32_t index, TimePoint now) {
  Item& item = items_[index];
  if (item.linked) {
    unlink(index);
    update_ready(item.connection);
  }
  if (flows_.hears()) leave_flow(index);
  queued_bytes_ -= item.bytes - item.sent;
  --size_;
  item.used = false;
  free_items_.push_back(index);
  flows_.finish(item.flow, item.bytes - item.sent, now);
}

void SendQueue::join_flow(std::uint32_t index) {
  Item& item = items_[index];
  if (item.flow >= of_flow_.size()) of_flow_.resize(item.flow + 1);
  Ends& ends = of_flow_[item.flow];
  item.earlier = ends.last;
  (ends.last == kNone ? ends.first : items_[ends.last].later) = index;
  ends.last = index;
}

void SendQueue::leave_flow(std::uint32_t index) {
  const Item& item = items_[index];
  Ends& ends = of_flow_[item.flow];
  (item.earlier == kNone ? ends.first : items_[item.earlier].later) = item.later;
  (item.later == kNone ? ends.last : items_[item.later].earlier) = item.earlier;
}

// To be called after the connection's first item or its being blocked may have changed.
void SendQueue::update_ready(ConnectionId id) {
  Connection& connection = connections_[id];
  if (connection.blocked || connection.head == kNone) {
    ready_.remove(id, connection_before());
    return;
  }
  connection.tie = flows_.place(items_[connection.head].flow).tie;
  ready_.update(id, connection_before());
}

bool SendQueue::goes_first(ConnectionId a, ConnectionId b) const {
  const Item& first = items_[connections_[a].head];
  const Item& second = items_[connections_[b].head];
  return std::tie(first.rank, connections_[a].tie, first.arrival) <
         std::tie(second.rank, connections_[b].tie, second.arrival);
}

}  // namespace clustar::transport
