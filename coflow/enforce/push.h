// How hard an iteration's bytes press on a link that they share with jobs of which nothing is known.
//
// MLTCP (Rajasekaran et al., HotNets 2024): a window grows by 1.75 times the part of the iteration that was sent, plus
// 0.25. The job that is ahead ends sooner, so jobs come to take turns, without a word between them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace clustar::coflow::enforce {

// Of SendPolicy::Turn, in eighths: 2 .. 16. `in_all`: bytes of the iteration, > 0.
inline std::uint8_t push_of(std::uint64_t left, std::uint64_t in_all) {
  const std::uint64_t sent = in_all - std::min(left, in_all);
  return static_cast<std::uint8_t>(2 +
                                   static_cast<int>(14.0 * static_cast<double>(sent) / static_cast<double>(in_all)));
}

}  // namespace clustar::coflow::enforce
