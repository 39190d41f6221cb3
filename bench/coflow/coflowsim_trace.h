// What CoflowSim (github.com/coflow/coflowsim b61f209) adds to a trace before it replays it.
#pragma once

#include "bench/coflow/workload.h"

namespace clustar::bench::coflow {

// java.util.Random: the linear congruential generator that its documentation fixes (Knuth, TAOCP vol. 2, 3.2.1).
class JavaRandom {
 public:
  explicit JavaRandom(std::uint64_t seed) : state_((seed ^ kFactor) & kMask) {}
  double next_double() {
    const std::uint64_t high = bits(26) << 27;
    return static_cast<double>(high + bits(27)) * 0x1p-53;
  }

 private:
  static constexpr std::uint64_t kFactor = 0x5DEECE66D;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << 48) - 1;
  std::uint64_t bits(int count) {
    state_ = (state_ * kFactor + 0xB) & kMask;
    return state_ >> (48 - count);
  }
  std::uint64_t state_;
};

// Deadlines by which its backfill is ordered, and which its deadline mode is about: what the coflow takes alone times
// 1 to 2, by its generator; at 2^27 B in 1,000 ms, though its ports carry them in 1,024.
void give_coflowsim_deadlines(Trace& trace);

}  // namespace clustar::bench::coflow
