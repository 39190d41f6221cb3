#include "mlt/driver/send_table.h"

#include <algorithm>
#include <utility>

namespace clustar::mlt::driver {

using transport::FlowTable;

void SendTable::open(ConnectionId connection, std::uint32_t peer, std::uint32_t job, std::size_t max_messages) {
  if (connection >= connections_.size()) connections_.resize(connection + 1);
  connections_[connection] = {peer, job, std::vector<Entry>(max_messages)};
}

void SendTable::close(ConnectionId connection, TimePoint now) {
  for (const Entry& entry : connections_[connection].entries) {
    if (entry.used) finish(connection, entry.message, now);
  }
  connections_[connection] = {};
}

std::optional<std::uint32_t> SendTable::send(Endpoint& core, ConnectionId connection, const OutboundMessage& message,
                                             SendTerms terms, TimePoint now) {
  const Connection& from = connections_[connection];
  const transport::FlowTag& tag = *message.flow;
  const auto key = transport::FlowKey::of(tag, from.peer, from.job, message.length);
  const FlowTable::FlowId flow = flows_.open(key, tag, message.length, now);
  terms.turn = turn_of(flow);
  terms.level = std::min(flows_.level(flow), kMaxLevel);
  const auto number = core.send(connection, message.length, message.tag, terms, now);
  if (!number) {
    flows_.finish(flow, message.length, now);
    return std::nullopt;
  }
  at(connection, *number) = {true,           *number, message.memory, message.offset, message.length,
                             message.length, flow,    kNone,          kNone};
  if (flows_.hears()) join_flow(key_of(connection, *number));
  return number;
}

void SendTable::sent(Endpoint& core, ConnectionId connection, std::uint32_t message, std::uint32_t bytes,
                     TimePoint now) {
  Entry& entry = at(connection, message);
  entry.unsent -= bytes;
  if (flows_.sent(entry.flow, bytes, now)) set_turns(core, entry.flow, now);
}

std::uint32_t SendTable::finish(ConnectionId connection, std::uint32_t message, TimePoint now) {
  if (flows_.hears()) leave_flow(key_of(connection, message));
  const Entry gone = std::exchange(at(connection, message), Entry{});
  flows_.finish(gone.flow, gone.unsent, now);
  return gone.length;
}

void SendTable::update_turns(Endpoint& core, TimePoint now) {
  while (const auto flow = flows_.changed(now)) set_turns(core, *flow, now);
}

Turn SendTable::turn_of(FlowTable::FlowId flow) const {
  const transport::FlowPlace place = flows_.place(flow);
  return {place.rank, place.tie, flows_.held(flow).value_or(TimePoint::min()), flows_.push(flow)};
}

void SendTable::set_turns(Endpoint& core, FlowTable::FlowId flow, TimePoint now) {
  const Turn turn = turn_of(flow);
  for (std::uint64_t key = of_flow_[flow].first; key != kNone; key = entry(key).later) {
    core.set_turn(static_cast<ConnectionId>(key >> 32), static_cast<std::uint32_t>(key), turn, now);
  }
}

void SendTable::join_flow(std::uint64_t key) {
  Entry& joins = entry(key);
  if (joins.flow >= of_flow_.size()) of_flow_.resize(joins.flow + 1);
  Ends& ends = of_flow_[joins.flow];
  joins.earlier = ends.last;
  (ends.last == kNone ? ends.first : entry(ends.last).later) = key;
  ends.last = key;
}

void SendTable::leave_flow(std::uint64_t key) {
  const Entry& leaves = entry(key);
  Ends& ends = of_flow_[leaves.flow];
  (leaves.earlier == kNone ? ends.first : entry(leaves.earlier).later) = leaves.later;
  (leaves.later == kNone ? ends.last : entry(leaves.later).earlier) = leaves.earlier;
}

}  // namespace clustar::mlt::driver
