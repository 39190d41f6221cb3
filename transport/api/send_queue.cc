#include "transport/api/send_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace clustar::transport {

SendQueue::SendQueue(std::unique_ptr<SendOrder> order) : order_(std::move(order)) {}

SendQueue::LaneId SendQueue::add_lane() {
  const auto free = std::find(lanes_.begin(), lanes_.end(), LaneState::kFree);
  if (free != lanes_.end()) {
    *free = LaneState::kOpen;
    return static_cast<LaneId>(free - lanes_.begin());
  }
  lanes_.push_back(LaneState::kOpen);
  return static_cast<LaneId>(lanes_.size() - 1);
}

void SendQueue::remove_lane(LaneId lane) {
  assert(lane < lanes_.size() && lanes_[lane] != LaneState::kFree);
  for (std::uint32_t i = head_; i != kNone;) {
    const std::uint32_t next = items_[i].next;
    if (items_[i].lane == lane) erase(i);
    i = next;
  }
  lanes_[lane] = LaneState::kFree;
}

void SendQueue::push(LaneId lane, std::uint64_t cookie, const FlowTag& flow, std::uint64_t bytes) {
  assert(lane < lanes_.size() && lanes_[lane] != LaneState::kFree);
  std::uint32_t index;
  if (free_items_.empty()) {
    index = static_cast<std::uint32_t>(items_.size());
    items_.emplace_back();
  } else {
    index = free_items_.back();
    free_items_.pop_back();
  }
  items_[index] = Item{lane, cookie, flow, bytes, 0, order_->rank(flow, bytes), next_arrival_++, kNone, kNone};
  link(index);
  ++size_;
  queued_bytes_ += bytes;
}

std::optional<SendQueue::Chunk> SendQueue::next(std::uint64_t max_chunk) const {
  assert(max_chunk > 0);
  for (std::uint32_t i = head_; i != kNone; i = items_[i].next) {
    const Item& item = items_[i];
    if (lanes_[item.lane] == LaneState::kBlocked) continue;
    const std::uint64_t remaining = item.bytes - item.sent;
    const std::uint64_t length = std::min(remaining, max_chunk);
    return Chunk{item.lane, item.cookie, item.sent, length, length == remaining, i};
  }
  return std::nullopt;
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
  const std::uint64_t rank = order_->rank(item.flow, item.bytes - item.sent);
  if (rank != item.rank) {
    unlink(chunk.item);
    item.rank = rank;
    link(chunk.item);
  }
}

void SendQueue::block(LaneId lane) { lanes_[lane] = LaneState::kBlocked; }

void SendQueue::unblock(LaneId lane) { lanes_[lane] = LaneState::kOpen; }

void SendQueue::set_order(std::unique_ptr<SendOrder> order) {
  order_ = std::move(order);
  reorder();
}

void SendQueue::reorder() {
  std::vector<std::uint32_t> queued;
  queued.reserve(size_);
  for (std::uint32_t i = head_; i != kNone; i = items_[i].next) queued.push_back(i);
  for (const std::uint32_t i : queued) items_[i].rank = order_->rank(items_[i].flow, items_[i].bytes - items_[i].sent);
  std::sort(queued.begin(), queued.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::tie(items_[a].rank, items_[a].arrival) < std::tie(items_[b].rank, items_[b].arrival);
  });
  head_ = tail_ = kNone;
  for (const std::uint32_t i : queued) link(i);
}

// Walks from the tail: under FIFO and for late arrivals of equal rank that is one step.
void SendQueue::link(std::uint32_t index) {
  Item& item = items_[index];
  std::uint32_t before = tail_;
  while (before != kNone && std::tie(items_[before].rank, items_[before].arrival) > std::tie(item.rank, item.arrival)) {
    before = items_[before].prev;
  }
  item.prev = before;
  item.next = before == kNone ? head_ : items_[before].next;
  (item.prev == kNone ? head_ : items_[item.prev].next) = index;
  (item.next == kNone ? tail_ : items_[item.next].prev) = index;
}

void SendQueue::unlink(std::uint32_t index) {
  const Item& item = items_[index];
  (item.prev == kNone ? head_ : items_[item.prev].next) = item.next;
  (item.next == kNone ? tail_ : items_[item.next].prev) = item.prev;
}

void SendQueue::erase(std::uint32_t index) {
  unlink(index);
  queued_bytes_ -= items_[index].bytes - items_[index].sent;
  --size_;
  free_items_.push_back(index);
}

}  // namespace clustar::transport
