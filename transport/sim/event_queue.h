// Events in the order of simulated time; those of equal time in the order in which they were scheduled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/time.h"

namespace clustar::transport::sim {

inline constexpr TimePoint kNever = TimePoint::max();

// Whatever events happen to. `kind` and `argument` are the target's own.
class EventTarget {
 public:
  virtual void on_event(std::uint32_t kind, std::uint32_t argument) = 0;
  // A hint that this event comes soon, to bring what it touches into the cache: with thousands of hosts, waiting for
  // memory is most of what an event costs. Changes nothing.
  virtual void prepare(std::uint32_t kind, std::uint32_t argument) const {
    (void)kind;
    (void)argument;
  }

 protected:
  ~EventTarget() = default;
};

// Asks for the cache lines of `bytes` from `at`.
inline void prefetch(const void* at, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(static_cast<const std::byte*>(at) + line);
}

// A wheel with a list for each of the next 65,536 nanoseconds, and a heap for what is later. Nearly all events of a
// network are near, so one costs the same whatever the number of hosts. An event moves from the heap to its list as
// soon as the wheel reaches its time, and that is before another can be pushed there: so lists are in order by
// themselves.
class EventQueue {
 public:
  EventQueue() : wheel_(kHorizon) {}

  TimePoint now() const { return now_; }
  bool empty() const { return size() == 0; }
  std::size_t size() const { return near_ + heap_.size(); }
  TimePoint next_time() const;
  std::uint64_t processed() const { return processed_; }

  // A time that has passed counts as now. The target must live until the event happens.
  void push(TimePoint at, EventTarget& target, std::uint32_t kind, std::uint32_t argument) {
    at = at < now_ ? now_ : at;
    if (at - now_ < Duration(kHorizon)) {
      push_near(at, target, kind, argument);
    } else {
      push_far({at, next_sequence_++, &target, kind, argument});
    }
  }
  // Lets the first event happen; false if there is none.
  bool step();
  // Lets everything up to and including `until` happen; now() is `until` afterwards.
  void run_until(TimePoint until);

 private:
  static constexpr std::uint32_t kHorizon = 1u << 16;  // ns
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Near {
    EventTarget* target;
    std::uint32_t kind;
    std::uint32_t argument;
  };
  // Lists are of chunks, so that the targets of the next events are known without a walk from event to event.
  struct alignas(64) Chunk {
    static constexpr std::uint32_t kEvents = 7;
    std::array<Near, kEvents> events;
    std::uint32_t next = kNone;  // in its list, or in the free list
    std::uint16_t begin = 0;     // the first that has not happened
    std::uint16_t end = 0;
  };
  struct List {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
  };
  struct Far {
    TimePoint at;
    std::uint64_t sequence;
    EventTarget* target;
    std::uint32_t kind;
    std::uint32_t argument;
  };
  static bool before(const Far& a, const Far& b) { return a.at < b.at || (a.at == b.at && a.sequence < b.sequence); }
  static std::uint32_t slot_of(TimePoint at) {
    return static_cast<std::uint32_t>(at.time_since_epoch().count()) & (kHorizon - 1);
  }

  void push_near(TimePoint at, EventTarget& target, std::uint32_t kind, std::uint32_t argument);
  void push_far(const Far& event);
  Far pop_far();
  void advance(TimePoint to);
  std::uint32_t first_slot() const;  // of the earliest near event; there is one
  void happen(std::uint32_t slot);
  std::uint32_t take_chunk();
  void look_ahead(const Chunk& chunk) const;

  std::vector<List> wheel_;
  // Which lists hold something: a bit for each, a bit for each word of those.
  std::array<std::uint64_t, kHorizon / 64> words_{};
  std::array<std::uint64_t, kHorizon / 64 / 64> summary_{};
  std::vector<Chunk> chunks_;
  std::uint32_t free_ = kNone;
  std::size_t near_ = 0;
  std::vector<Far> heap_;  // 4-ary; nothing in it is before now + kHorizon
  TimePoint now_{};
  std::uint64_t next_sequence_ = 0;
  std::uint64_t processed_ = 0;
};

// One pending time that moves often. Moving it later costs nothing: the event that is pending finds, when it happens,
// that it is too early, and is scheduled again only then.
class Timer {
 public:
  Timer(EventQueue& queue, EventTarget& target, std::uint32_t kind) : queue_(queue), target_(target), kind_(kind) {}

  TimePoint deadline() const { return deadline_; }
  void arm(TimePoint at);  // replaces the earlier time; kNever: disarms
  // For the target's on_event(kind, argument): true if the timer is due now; it is disarmed then.
  bool due(std::uint32_t argument);

 private:
  void schedule(TimePoint at);

  EventQueue& queue_;
  EventTarget& target_;
  std::uint32_t kind_;
  TimePoint deadline_ = kNever;
  TimePoint pending_at_ = kNever;  // of the event that counts; earlier generations are ignored
  std::uint32_t generation_ = 0;
};

}  // namespace clustar::transport::sim
