#include "transport/api/send_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace clustar::transport {

SendQueue::SendQueue(std::unique_ptr<SendOrder> order) : order_(std::move(order)) {}

SendQueue::LaneId SendQueue::add_lane() {
  auto free = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.used; });
  if (free == lanes_.end()) free = lanes_.emplace(lanes_.end());
  *free = Lane{};
  free->used = true;
  return static_cast<LaneId>(free - lanes_.begin());
}

void SendQueue::remove_lane(LaneId lane) {
  assert(lane < lanes_.size() && lanes_[lane].used);
  while (lanes_[lane].head != kNone) erase(lanes_[lane].head);
  lanes_[lane].used = false;
}

void SendQueue::push(LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes) {
  assert(lane < lanes_.size() && lanes_[lane].used);
  std::uint32_t index;
  if (free_items_.empty()) {
    index = static_cast<std::uint32_t>(items_.size());
    items_.emplace_back();
  } else {
    index = free_items_.back();
    free_items_.pop_back();
  }
  const std::uint64_t rank = order_->rank({flow.traffic_class, flow.coflow, flow.bytes}, bytes);
  items_[index] =
      Item{lane, flow.traffic_class, cookie, flow.coflow, flow.bytes, bytes, 0, rank, next_arrival_++, kNone, kNone};
  link(index);
  update_ready(lane);
  ++size_;
  queued_bytes_ += bytes;
}

std::optional<SendQueue::Chunk> SendQueue::next(std::uint64_t max_chunk) const {
  assert(max_chunk > 0);
  if (ready_.empty()) return std::nullopt;
  const LaneId lane = ready_.front();
  const Item& item = items_[lanes_[lane].head];
  const std::uint64_t remaining = item.bytes - item.sent;
  const std::uint64_t length = std::min(remaining, max_chunk);
  return Chunk{lane, item.cookie, item.sent, length, length == remaining, lanes_[lane].head};
}

void SendQueue::commit(const Chunk& chunk) {
  Item& item = items_[chunk.item];
  assert(item.lane == chunk.lane && item.cookie == chunk.cookie && item.sent == chunk.offset);
  item.sent += chunk.length;
  queued_bytes_ -= chunk.length;
  if (chunk.last) {
    erase(chunk.item);
    return;
  }
  const std::uint64_t rank = order_->rank(item.flow(), item.bytes - item.sent);
  if (rank != item.rank) {
    unlink(chunk.item);
    item.rank = rank;
    link(chunk.item);
    update_ready(chunk.lane);
  }
}

void SendQueue::block(LaneId lane) {
  lanes_[lane].blocked = true;
  update_ready(lane);
}

void SendQueue::unblock(LaneId lane) {
  lanes_[lane].blocked = false;
  update_ready(lane);
}

void SendQueue::set_order(std::unique_ptr<SendOrder> order) {
  order_ = std::move(order);
  reorder();
}

void SendQueue::reorder() {
  std::vector<std::uint32_t> queued;
  for (Lane& lane : lanes_) {
    queued.clear();
    for (std::uint32_t i = lane.head; i != kNone; i = items_[i].next) {
      items_[i].rank = order_->rank(items_[i].flow(), items_[i].bytes - items_[i].sent);
      queued.push_back(i);
    }
    std::sort(queued.begin(), queued.end(), [this](std::uint32_t a, std::uint32_t b) { return goes_before(a, b); });
    lane.head = lane.tail = kNone;
    for (const std::uint32_t i : queued) link(i);
  }
  for (std::size_t place = ready_.size() / 2; place-- > 0;) sift_down(place);
}

bool SendQueue::goes_before(std::uint32_t a, std::uint32_t b) const {
  return std::tie(items_[a].rank, items_[a].arrival) < std::tie(items_[b].rank, items_[b].arrival);
}

// Walks from the tail: under FIFO and for late arrivals of equal rank that is one step.
void SendQueue::link(std::uint32_t index) {
  Item& item = items_[index];
  Lane& lane = lanes_[item.lane];
  std::uint32_t before = lane.tail;
  while (before != kNone && goes_before(index, before)) before = items_[before].prev;
  item.prev = before;
  item.next = before == kNone ? lane.head : items_[before].next;
  (item.prev == kNone ? lane.head : items_[item.prev].next) = index;
  (item.next == kNone ? lane.tail : items_[item.next].prev) = index;
}

void SendQueue::unlink(std::uint32_t index) {
  const Item& item = items_[index];
  Lane& lane = lanes_[item.lane];
  (item.prev == kNone ? lane.head : items_[item.prev].next) = item.next;
  (item.next == kNone ? lane.tail : items_[item.next].prev) = item.prev;
}

void SendQueue::erase(std::uint32_t index) {
  unlink(index);
  update_ready(items_[index].lane);
  queued_bytes_ -= items_[index].bytes - items_[index].sent;
  --size_;
  free_items_.push_back(index);
}

// To be called after the lane's first item or its being blocked may have changed.
void SendQueue::update_ready(LaneId id) {
  Lane& lane = lanes_[id];
  const bool ready = !lane.blocked && lane.head != kNone;
  if (ready) {
    if (lane.ready_at == kNone) {
      lane.ready_at = static_cast<std::uint32_t>(ready_.size());
      ready_.push_back(id);
    }
    sift_up(lane.ready_at);
    sift_down(lane.ready_at);
    return;
  }
  if (lane.ready_at == kNone) return;
  const std::size_t hole = lane.ready_at;
  lane.ready_at = kNone;
  const LaneId moved = ready_.back();
  ready_.pop_back();
  if (moved == id) return;
  put(hole, moved);
  sift_up(hole);
  sift_down(lanes_[moved].ready_at);
}

void SendQueue::put(std::size_t place, LaneId lane) {
  ready_[place] = lane;
  lanes_[lane].ready_at = static_cast<std::uint32_t>(place);
}

bool SendQueue::lane_before(LaneId a, LaneId b) const { return goes_before(lanes_[a].head, lanes_[b].head); }

void SendQueue::sift_up(std::size_t place) {
  const LaneId lane = ready_[place];
  for (; place > 0 && lane_before(lane, ready_[(place - 1) / 2]); place = (place - 1) / 2) {
    put(place, ready_[(place - 1) / 2]);
  }
  put(place, lane);
}

void SendQueue::sift_down(std::size_t place) {
  const LaneId lane = ready_[place];
  for (std::size_t child = 2 * place + 1; child < ready_.size(); child = 2 * place + 1) {
    if (child + 1 < ready_.size() && lane_before(ready_[child + 1], ready_[child])) ++child;
    if (!lane_before(ready_[child], lane)) break;
    put(place, ready_[child]);
    place = child;
  }
  put(place, lane);
}

}  // namespace clustar::transport
