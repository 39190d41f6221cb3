#include "paraexpress/tolerant/core/closing.h"

#include <algorithm>

namespace clustar::paraexpress::tolerant {

Closing::Closing(const Terms& terms) : terms_(terms), heard_(terms.ranks), was_in_(terms.ranks) {}

void Closing::arrived(Member rank, std::uint64_t round, std::uint32_t weight, bool fresh, TimePoint now) {
  heard_[rank] = std::max(heard_[rank], round + 1);
  if (round != next_) return;
  in_.set(rank);
  contributors_.set(rank, weight > 0);
  if (fresh && !first_) first_ = now;
}

// It was in the round before, or has come since.
bool Closing::is_expected(Member rank) const { return heard_[rank] >= next_; }

bool Closing::waits_for_late_ranks() const {
  for (Member rank = 0; rank < terms_.ranks; ++rank) {
    if (!in_.test(rank) && next_ + 1 - was_in_[rank] > terms_.staleness) return true;
  }
  return false;
}

bool Closing::may_close(TimePoint now) const {
  if (in_.count() == terms_.ranks) return true;
  if (contributors_.count() < terms_.quorum) return false;
  if (waits_for_late_ranks()) return false;
  if (first_ && now - *first_ >= terms_.deadline) return true;
  for (Member rank = 0; rank < terms_.ranks; ++rank) {
    if (!in_.test(rank) && is_expected(rank)) return false;
  }
  return true;
}

std::optional<TimePoint> Closing::look_again() const {
  if (!first_ || contributors_.count() < terms_.quorum || waits_for_late_ranks()) return std::nullopt;
  return *first_ + terms_.deadline;
}

void Closing::close() {
  for (Member rank = 0; rank < terms_.ranks; ++rank) {
    if (in_.test(rank)) was_in_[rank] = next_ + 1;
  }
  ++next_;
  in_.reset();
  contributors_.reset();
  first_.reset();
}

}  // namespace clustar::paraexpress::tolerant
