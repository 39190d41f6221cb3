// How many packets of parity each block of a message gets: as few as make it unlikely that a loss costs a round trip,
// and none where round trips are short, nothing is lost, or parity could not help.
#pragma once

#include <array>
#include <cstdint>

#include "mlt/core/options.h"
#include "mlt/core/wire.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class ParityPolicy {
 public:
  explicit ParityPolicy(const Options& options) : options_(options) {}

  // A packet of the connection, of whatever message, was delivered or given up as lost.
  void settled(bool lost);
  // Of the recent packets: the share that is lost one by one.
  double loss() const;

  // Rows for a block of so many packets. `min_rtt`: without queues.
  std::uint32_t rows(std::uint32_t packets, Duration min_rtt) const;
  // Whether of a message of so many packets more than `may_miss` are likely to be lost.
  bool exceeds(std::uint32_t packets, std::uint32_t may_miss) const;

 private:
  static std::uint32_t rows_against(double loss, std::uint32_t packets);
  bool helps(std::uint32_t rows) const;

  const Options& options_;
  // Groups of kParityBlock that were settled one after the other. One that lost more than any parity could give back
  // (a link that failed, a queue that ran over) is left out of the sums: it would call for parity that does not help.
  std::uint32_t group_ = 0, group_lost_ = 0;
  std::uint32_t packets_ = 0, lost_ = 0;                // halved now and then, as the next
  std::array<std::uint32_t, kMaxParity + 2> groups_{};  // by how many of them were lost; the last: more
};

}  // namespace clustar::mlt
