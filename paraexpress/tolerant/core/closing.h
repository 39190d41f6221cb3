// When a round of a bucket's part closes, and with whom: the rule of the rank that adds that part up, its root.
//
//   all ranks are in                                          -> close
//   those missing are known to be late, and a quorum is in    -> close: nobody is waited for in vain
//   the deadline is over, and a quorum is in                  -> close
//   unless a rank would be missing in more than `staleness` rounds in a row: then the round waits until it is in
//
// A rank is known to be late where it missed the round before and has not sent even that one since.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paraexpress/tolerant/core/terms.h"

namespace clustar::paraexpress::tolerant {

class Closing {
 public:
  explicit Closing(const Terms& terms);

  // All that the rank gives to this round is here. `weight`: how many gradients it holds; 0: it gives nothing. `fresh`:
  // one of them was computed for this round, and is no one that was kept. Of a round that is closed already it only
  // tells that the rank is there. No round is ahead of next().
  void arrived(Member rank, std::uint64_t round, std::uint32_t weight, bool fresh, TimePoint now);

  std::uint64_t next() const { return next_; }  // the round that closes next
  bool may_close(TimePoint now) const;
  // When may_close() may become true though nothing arrives.
  std::optional<TimePoint> look_again() const;
  // Those whose contributions the round has, if it closes now.
  const Members& contributors() const { return contributors_; }
  void close();

 private:
  bool waits_for_late_ranks() const;
  bool is_expected(Member rank) const;

  const Terms terms_;
  std::uint64_t next_ = 0;
  std::vector<std::uint64_t> heard_;   // by rank: one more than the last round that it sent something for
  std::vector<std::uint64_t> was_in_;  // by rank: one more than the last round that closed with it
  Members in_{}, contributors_{};
  std::optional<TimePoint> first_{};
};

}  // namespace clustar::paraexpress::tolerant
