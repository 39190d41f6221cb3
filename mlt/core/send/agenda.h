// Who sends next: messages of one sender, and senders that share a line. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/time.h"

namespace clustar::mlt {

// When a message goes, as its caller has it: the smaller rank first, then the smaller tie, then by arrival.
// Eighths of a window's growth: what everybody has.
inline constexpr std::uint8_t kPlainPush = 8;

struct Turn {
  std::uint64_t rank = 0;
  std::uint64_t tie = 0;
  TimePoint not_before = TimePoint::min();  // of first transmissions
  std::uint8_t push = kPlainPush;           // how fast the window grows that it goes by (Congestion::set_push)

  bool same_place(const Turn& other) const { return rank == other.rank && tie == other.tie; }
  bool before(const Turn& other) const { return rank != other.rank ? rank < other.rank : tie < other.tie; }
};

// Whose turn it is of several senders: what each would send next.
struct SendPlace {
  Turn turn;
  bool bulk = false;  // messages up to Options::mouse_bytes go before the others of their rank
  std::uint64_t arrival = 0;

  bool before(const SendPlace& other) const {
    if (!turn.same_place(other.turn)) return turn.before(other.turn);
    return bulk != other.bulk ? other.bulk : arrival < other.arrival;
  }
};

// The messages of one sender of which some packets were never sent, in the order in which they go.
class Agenda {
 public:
  struct Entry {
    Turn turn;
    std::uint32_t message = 0;
  };

  // Messages come in the order of their numbers; each is here once.
  void add(std::uint32_t message, const Turn& turn, TimePoint now) {
    if (turn.not_before > now) {
      held_.push_back({turn, message});
      next_release_ = std::min(next_release_, turn.not_before);
      return;
    }
    insert({turn, message});
  }
  // Nothing if it is not here.
  void remove(std::uint32_t message) {
    const auto is = [&](const Entry& entry) { return entry.message == message; };
    const auto from = entries_.begin() + first_;
    const auto found = std::find_if(from, entries_.end(), is);
    if (found == entries_.end()) {
      std::erase_if(held_, is);
    } else if (found == from) {
      ++first_;
      if (first_ < kCompact) return;
      entries_.erase(entries_.begin(), entries_.begin() + first_);
      first_ = 0;
    } else {
      entries_.erase(found);
    }
  }

  // Those whose time has come may go.
  void release(TimePoint now) {
    if (now < next_release_) return;
    next_release_ = TimePoint::max();
    std::erase_if(held_, [&](const Entry& entry) {
      if (entry.turn.not_before <= now) {
        insert(entry);
        return true;
      }
      next_release_ = std::min(next_release_, entry.turn.not_before);
      return false;
    });
  }
  TimePoint next_release() const { return next_release_; }

  // Those that may go, in order.
  std::span<const Entry> entries() const { return std::span(entries_).subspan(static_cast<std::size_t>(first_)); }
  std::size_t size() const { return entries().size() + held_.size(); }

 private:
  static constexpr std::ptrdiff_t kCompact = 64;

  void insert(const Entry& entry) {
    auto at = entries_.end();
    while (at != entries_.begin() + first_ && goes_before(entry, *(at - 1))) --at;
    entries_.insert(at, entry);
  }

  static bool goes_before(const Entry& a, const Entry& b) {
    if (!a.turn.same_place(b.turn)) return a.turn.before(b.turn);
    return static_cast<std::int32_t>(a.message - b.message) < 0;  // numbers wrap
  }

  std::vector<Entry> entries_;
  std::ptrdiff_t first_ = 0;  // those before it are gone
  std::vector<Entry> held_;
  TimePoint next_release_ = TimePoint::max();  // not after any of held_
};

}  // namespace clustar::mlt
