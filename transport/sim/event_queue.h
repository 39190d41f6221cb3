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

 protected:
  ~EventTarget() = default;
};

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
    std::uint32_t next;  // in its list, or in the free list
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

  std::vector<List> wheel_;
  // Which lists hold something: a bit for each, a bit for each word of those.
  std::array<std::uint64_t, kHorizon / 64> words_{};
  std::array<std::uint64_t, kHorizon / 64 / 64> summary_{};
  std::vector<Near> nodes_;
  std::uint32_t free_ = kNone;
  std::size_t near_ = 0;
  std::vector<Far> heap_;  // 4-ary; nothing in it is before now + kHorizon
  TimePoint now_{};
  std::uint64_t next_sequence_ = 0;
  std::uint64_t processed_ = 0;
};

// One pending time that moves often. Moving it later costs nothing: the event that is pending finds, when it happens,
// that it is too early, and only then is scheduled anew.
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
