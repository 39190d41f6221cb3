#include "transport/message/send_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace clustar::transport {

SendQueue::LaneId SendQueue::add_lane(const LaneFacts& facts) {
  auto free = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.used; });
  if (free == lanes_.end()) free = lanes_.emplace(lanes_.end());
  *free = Lane{};
  free->used = true;
  free->facts = facts;
  return static_cast<LaneId>(free - lanes_.begin());
}

void SendQueue::remove_lane(LaneId lane, TimePoint now) {
  assert(lane < lanes_.size() && lanes_[lane].used);
  while (lanes_[lane].head != kNone) erase(lanes_[lane].head, now);
  for (std::uint32_t i = 0; i < items_.size() && size_ > 0; ++i) {  // those whose flows are held back
    if (items_[i].used && items_[i].lane == lane) erase(i, now);
  }
  lanes_[lane].used = false;
}

void SendQueue::push(LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes, TimePoint now) {
  assert(lane < lanes_.size() && lanes_[lane].used);
  std::uint32_t index;
  if (free_items_.empty()) {
    index = static_cast<std::uint32_t>(items_.size());
    items_.emplace_back();
  } else {
    index = free_items_.back();
    free_items_.pop_back();
  }
  const LaneFacts& facts = lanes_[lane].facts;
  Item& item = items_[index];
  item = Item{};
  item.used = true;
  item.lane = lane;
  item.cookie = cookie;
  item.bytes = bytes;
  item.arrival = next_arrival_++;
  item.flow = flows_.open({flow.coflow, facts.peer, facts.job, flow.traffic_class}, flow, bytes, now);
  if (flows_.hears()) join_flow(index);
  if (!flows_.held(item.flow)) {
    link(index);
    update_ready(lane);
  }
  ++size_;
  queued_bytes_ += bytes;
}

std::optional<SendQueue::Chunk> SendQueue::next(std::uint64_t max_chunk, TimePoint now) {
  assert(max_chunk > 0);
  while (const auto flow = flows_.changed(now)) move_flow(*flow);
  if (ready_.empty()) return std::nullopt;
  while (mend_top()) {
  }
  const LaneId lane = ready_.top();
  const Item& item = items_[lanes_[lane].head];
  const std::uint64_t remaining = item.bytes - item.sent;
  const std::uint64_t length = std::min(remaining, max_chunk);
  return Chunk{lane, item.cookie, item.sent, length, length == remaining, lanes_[lane].head};
}

void SendQueue::commit(const Chunk& chunk, TimePoint now) {
  Item& item = items_[chunk.item];
  assert(item.lane == chunk.lane && item.cookie == chunk.cookie && item.sent == chunk.offset);
  item.sent += chunk.length;
  queued_bytes_ -= chunk.length;
  const FlowTable::FlowId flow = item.flow;
  const bool moves = flows_.sent(flow, chunk.length, now);
  if (chunk.last) erase(chunk.item, now);
  if (moves) move_flow(flow);
}

void SendQueue::block(LaneId lane) {
  lanes_[lane].blocked = true;
  update_ready(lane);
}

void SendQueue::unblock(LaneId lane) {
  lanes_[lane].blocked = false;
  update_ready(lane);
}

// Its items where they belong by what the policy says of it. A tie alone moves nothing: mend_top().
void SendQueue::move_flow(FlowTable::FlowId flow) {
  const bool held = flows_.held(flow).has_value();
  const std::uint64_t rank = flows_.place(flow).rank;
  for (std::uint32_t i = of_flow_[flow].first; i != kNone; i = items_[i].later) {
    Item& item = items_[i];
    if (item.linked == !held && item.rank == rank) continue;
    if (item.linked) unlink(i);
    if (!held) link(i);
    update_ready(item.lane);
  }
}

// True: the top was older than it said, and another may be it.
bool SendQueue::mend_top() {
  Lane& lane = lanes_[ready_.top()];
  const std::uint64_t tie = flows_.place(items_[lane.head].flow).tie;
  if (tie == lane.tie) return false;
  lane.tie = tie;
  const LaneId top = ready_.top();
  ready_.update(top, lane_before());
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
  Lane& lane = lanes_[item.lane];
  std::uint32_t before = lane.tail;
  while (before != kNone && goes_before(index, before)) before = items_[before].prev;
  item.prev = before;
  item.next = before == kNone ? lane.head : items_[before].next;
  (item.prev == kNone ? lane.head : items_[item.prev].next) = index;
  (item.next == kNone ? lane.tail : items_[item.next].prev) = index;
}

void SendQueue::unlink(std::uint32_t index) {
  Item& item = items_[index];
  item.linked = false;
  Lane& lane = lanes_[item.lane];
  (item.prev == kNone ? lane.head : items_[item.prev].next) = item.next;
  (item.next == kNone ? lane.tail : items_[item.next].prev) = item.prev;
}

void SendQueue::erase(std::uint32_t index, TimePoint now) {
  Item& item = items_[index];
  if (item.linked) {
    unlink(index);
    update_ready(item.lane);
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

// To be called after the lane's first item or its being blocked may have changed.
void SendQueue::update_ready(LaneId id) {
  Lane& lane = lanes_[id];
  if (lane.blocked || lane.head == kNone) {
    ready_.remove(id, lane_before());
    return;
  }
  lane.tie = flows_.place(items_[lane.head].flow).tie;
  ready_.update(id, lane_before());
}

bool SendQueue::goes_first(LaneId a, LaneId b) const {
  const Item& first = items_[lanes_[a].head];
  const Item& second = items_[lanes_[b].head];
  return std::tie(first.rank, lanes_[a].tie, first.arrival) < std::tie(second.rank, lanes_[b].tie, second.arrival);
}

}  // namespace clustar::transport
