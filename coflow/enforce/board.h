// What the processes that share a NIC tell each other: what each has to send, what its job was served, and until when
// the line is taken. Pure: the memory is the caller's (board_file.h shares it between processes), time is an argument,
// the same clock in all of them.
//
// Who waits for whom, where the line is taken: the less urgent for the more urgent; of equal urgency jobs take turns.
// Jobs that are not ahead of the least served by more than the largest iteration, or coflow where iterations are not
// known (a quarter of a second of the line at most), go by what is left of theirs, and before those that are (deficit
// round robin, Shreedhar and Varghese, SIGCOMM 1995; coflow/core/policies/turns.h). Where a coordinator has placed
// both, its order decides, which is the same on all hosts. A process counts only as long as it asks: one that is
// blocked, stopped or dead holds up nobody for longer than a lease.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/api/flow_tag.h"
#include "transport/base/time.h"

namespace clustar::coflow::enforce {

// One process, of one job. Written by its owner only.
struct alignas(64) BoardSlot {
  std::atomic<std::int64_t> asked_at{
      0};                                // ns of the clock: when it last had bulk and asked whether it may go; 0: never
  std::atomic<std::uint64_t> served{0};  // bytes of bulk over the weight, corrected by what a job may claim or owe
  std::atomic<std::uint64_t> left{0};    // bytes of the iteration, or coflow, that it sends
  std::atomic<std::uint64_t> largest{0};  // iteration or coflow, bytes over the weight
  std::atomic<std::uint32_t> urgency{0};  // the most urgent that waits
  std::atomic<std::uint32_t> job{0};
  std::atomic<std::uint64_t> place{0};  // in the coordinator's order, of what it sends; 0: it has none
};

struct BoardState {
  static constexpr std::size_t kSlots = 64;
  static constexpr std::uint64_t kMagic = 0x636c737461724231;  // "clstarB1": another layout, another magic

  std::atomic<std::uint64_t> magic{0};
  std::atomic<std::int64_t> line_free_at{0};  // ns: when the line has carried all that was handed to it
  std::atomic<std::int64_t> mouse_at{0};      // ns: when a mouse was last queued
  std::atomic<std::uint64_t> bulk{0};         // bytes, by all
  std::atomic<std::uint32_t> used{0};         // slots that somebody had, from the first
  std::array<BoardSlot, kSlots> slots{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

struct BoardOptions {
  std::uint64_t bytes_per_second = 0;  // of the line, as it is paced; 0: nobody waits
  std::uint32_t job = 0;
  std::uint32_t weight = 1;  // of the job, > 0
  std::uint64_t chunk = 16 * 1024;
  std::uint32_t floor_turns = 32;
  std::uint64_t quantum = 64 * 1024;
};

// The view of one process. The owner locks.
class Board {
 public:
  static constexpr std::uint32_t kNobody = transport::kUrgencies;

  // `slot` is nobody else's.
  Board(BoardState& state, std::size_t slot, const BoardOptions& options);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Bulk of this urgency waits, the most urgent, and so much is left of its iteration or coflow, which has so much in
  // all.
  // `place`: BoardSlot's.
  void wants(std::uint32_t urgency, std::uint64_t left, std::uint64_t in_all, std::uint64_t place, TimePoint now);
  // Nothing waits.
  void rests();
  // Was handed to the line: mice, too.
  void took_line(std::uint64_t bytes, TimePoint now);
  void sent_bulk(std::uint64_t bytes);
  void saw_mouse(TimePoint now);
  // Any process of this NIC has had bulk to send until now. For one that has none itself.
  bool bulk_waits(TimePoint now);
  std::uint64_t bulk() const { return state_.bulk.load(std::memory_order_relaxed); }  // bytes, sent by all

  // From which urgency on this process lets others go first; kNobody: none. Looks at the others once in kLook at most.
  std::uint32_t waits_from(TimePoint now);
  // Somebody else has bulk to send.
  bool contended() const { return others_ > 0; }
  std::uint32_t urgency() const { return urgency_; }  // of what wants() said last; kNobody: nothing waits
  // The most urgent bulk of others; kNobody: there is none.
  std::uint32_t most_urgent_other() const { return most_urgent_other_; }
  // The longest between two recent polls, while bulk waited; at most kLongestGap.
  Duration gap() const { return std::max(longest_gap_, earlier_gap_); }
  // Others had so much that now is this one's quantum, whatever else the board says.
  bool has_floor() const { return floor_left_ > 0; }
  TimePoint line_free_at(TimePoint now) const;
  TimePoint mouse_at(TimePoint now) const;
  // How long the line must have been free before one who lets others go first may go: they are not sending.
  Duration grace() const { return grace_; }
  Duration lease() const { return lease_; }

 private:
  static constexpr Duration kLook = std::chrono::microseconds(20);
  static constexpr Duration kLookAlone = std::chrono::microseconds(100);
  struct Standing {
    std::uint64_t served = 0;
    std::uint64_t left = 0;
    std::uint32_t job = 0;
    std::uint64_t place = 0;
  };

  std::span<BoardSlot> slots() const;
  void watch_gaps(TimePoint now);
  void look(TimePoint now);
  void settle();
  void settle(std::uint64_t served, std::uint64_t low, std::uint64_t high, std::uint64_t siblings);
  std::uint64_t served_by(std::uint32_t job) const;
  std::uint64_t turn_bytes(std::uint64_t largest) const;

  BoardState& state_;
  BoardSlot& mine_;
  const BoardOptions options_;
  const Duration lease_;
  const std::uint64_t longest_turn_;  // bytes: a quarter of a second of the line
  // Of the line's time that nobody used so much is caught up, or what passed between two polls.
  const Duration slack_;
  const Duration grace_;
  bool wants_ = false;
  std::uint32_t urgency_ = kNobody;
  TimePoint looked_at_ = TimePoint::min();
  TimePoint polled_at_ = TimePoint::min();  // when it asked last
  Duration gap_{0};                         // from the time before to that
  // The longest of this window, and of the one before: a busy processor is away for a time slice now and then.
  Duration longest_gap_{0}, earlier_gap_{0};
  TimePoint window_at_ = TimePoint::min();
  std::uint32_t waits_from_ = kNobody;
  std::uint32_t others_ = 0;  // processes that have bulk to send
  std::uint32_t most_urgent_other_ = kNobody;
  std::uint64_t bulk_seen_ = 0;  // of all; behind what there is by what others had since this one had its floor
  TimePoint bulk_asked_at_ = TimePoint::min();
  bool bulk_waits_ = false;
  std::uint64_t floor_left_ = 0;  // bytes that it may send though others go first
};

}  // namespace clustar::coflow::enforce
