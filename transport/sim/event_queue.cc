#include "transport/sim/event_queue.h"

#include <algorithm>
#include <bit>

namespace clustar::transport::sim {

std::uint32_t EventQueue::take_chunk() {
  if (free_ == kNone) {
    free_ = static_cast<std::uint32_t>(chunks_.size());
    chunks_.emplace_back();
  }
  const std::uint32_t taken = free_;
  Chunk& chunk = chunks_[taken];
  free_ = chunk.next;
  chunk.next = kNone;
  chunk.begin = chunk.end = 0;
  return taken;
}

void EventQueue::push_near(TimePoint at, EventTarget& target, std::uint32_t kind, std::uint32_t argument) {
  const std::uint32_t slot = slot_of(at);
  List& list = wheel_[slot];
  if (list.head == kNone) {
    list.head = list.tail = take_chunk();
    words_[slot / 64] |= std::uint64_t{1} << (slot % 64);
    summary_[slot / 4096] |= std::uint64_t{1} << (slot / 64 % 64);
  } else if (chunks_[list.tail].end == Chunk::kEvents) {
    const std::uint32_t more = take_chunk();
    chunks_[list.tail].next = more;
    list.tail = more;
  }
  Chunk& chunk = chunks_[list.tail];
  chunk.events[chunk.end++] = {&target, kind, argument};
  ++near_;
}

void EventQueue::push_far(const Far& event) {
  std::size_t hole = heap_.size();
  heap_.push_back(event);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / 4;
    if (!before(event, heap_[parent])) break;
    heap_[hole] = heap_[parent];
    hole = parent;
  }
  heap_[hole] = event;
}

EventQueue::Far EventQueue::pop_far() {
  const Far first = heap_.front();
  const Far last = heap_.back();
  heap_.pop_back();
  const std::size_t size = heap_.size();
  if (size == 0) return first;
  std::size_t hole = 0;
  for (std::size_t child = 1; child < size; child = 4 * hole + 1) {
    const std::size_t end = std::min(child + 4, size);
    std::size_t best = child;
    for (std::size_t i = child + 1; i < end; ++i) best = before(heap_[i], heap_[best]) ? i : best;
    if (!before(heap_[best], last)) break;
    heap_[hole] = heap_[best];
    hole = best;
  }
  heap_[hole] = last;
  return first;
}

void EventQueue::advance(TimePoint to) {
  now_ = to;
  while (!heap_.empty() && heap_.front().at - now_ < Duration(kHorizon)) {
    const Far event = pop_far();
    push_near(event.at, *event.target, event.kind, event.argument);
  }
}

// Round the wheel from now's own list: the rest of its word, the rest of that word's group, the groups after it, and at
// last what of the first word and group lies before now, which is the farthest future.
std::uint32_t EventQueue::first_slot() const {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  const std::uint32_t start = slot_of(now_);
  std::uint32_t word = start / 64;
  if (const std::uint64_t rest = words_[word] & kAll << (start % 64)) {
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(rest));
  }
  const std::uint32_t group = word / 64;
  const std::uint64_t above = word % 64 == 63 ? 0 : kAll << (word % 64 + 1);
  std::uint32_t found = group;
  std::uint64_t candidates = summary_[group] & above;
  for (std::uint32_t i = 1; candidates == 0; ++i) {
    found = (group + i) % summary_.size();
    candidates = summary_[found];
  }
  word = found * 64 + static_cast<std::uint32_t>(std::countr_zero(candidates));
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[word]));
}

TimePoint EventQueue::next_time() const {
  if (near_ == 0) return heap_.empty() ? kNever : heap_.front().at;
  return now_ + Duration((first_slot() - slot_of(now_)) & (kHorizon - 1));
}

// At the first event of a chunk, whose targets were asked for at the first of the chunk before.
void EventQueue::look_ahead(const Chunk& chunk) const {
  for (std::uint32_t i = 1; i < chunk.end; ++i) {
    const Near& event = chunk.events[i];
    event.target->prepare(event.kind, event.argument);
  }
  if (chunk.next == kNone) return;
  const Chunk& next = chunks_[chunk.next];
  for (std::uint32_t i = 0; i < next.end; ++i) prefetch(next.events[i].target, 128);
  if (next.next != kNone) prefetch(&chunks_[next.next], sizeof(Chunk));
}

void EventQueue::happen(std::uint32_t slot) {
  List& list = wheel_[slot];
  const std::uint32_t index = list.head;
  Chunk& chunk = chunks_[index];
  if (chunk.begin == 0) look_ahead(chunk);
  const Near event = chunk.events[chunk.begin++];
  if (chunk.begin == chunk.end) {
    list.head = chunk.next;
    if (list.head == kNone) {
      words_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
      if (words_[slot / 64] == 0) summary_[slot / 4096] &= ~(std::uint64_t{1} << (slot / 64 % 64));
    }
    chunk.next = free_;
    free_ = index;
  }
  --near_;
  ++processed_;
  event.target->on_event(event.kind, event.argument);
}

bool EventQueue::step() {
  const TimePoint at = next_time();
  if (at == kNever) return false;
  if (at != now_) advance(at);
  happen(slot_of(at));
  return true;
}

void EventQueue::run_until(TimePoint until) {
  for (TimePoint at = next_time(); at <= until && !empty(); at = next_time()) {
    if (at != now_) advance(at);
    happen(slot_of(at));
  }
  if (until > now_) advance(until);
}

void Timer::arm(TimePoint at) {
  deadline_ = at;
  if (at < pending_at_) schedule(at);
}

bool Timer::due(std::uint32_t argument) {
  if (argument != generation_) return false;
  pending_at_ = kNever;
  if (deadline_ > queue_.now()) {
    if (deadline_ != kNever) schedule(deadline_);
    return false;
  }
  deadline_ = kNever;
  return true;
}

void Timer::schedule(TimePoint at) {
  pending_at_ = std::max(at, queue_.now());
  queue_.push(at, target_, kind_, ++generation_);
}

}  // namespace clustar::transport::sim
