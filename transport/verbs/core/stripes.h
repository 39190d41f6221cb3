// How a message is cut over queue pairs. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/verbs/core/wire.h"

namespace clustar::transport::verbs {

struct StripePlan {
  std::uint64_t bytes = 0;  // of every stripe but the last, which may be shorter; > 0
  std::uint32_t count = 1;  // 1 .. kMaxStripes; 1 for an empty message
};

// One stripe for each of `queue_pairs` (> 0) if each gets `least` bytes (> 0), none longer than `most` (>= least)
// unless kMaxStripes of them would not do. Multiples of 4 KiB, so that stripes end where packets do.
constexpr StripePlan plan_stripes(std::uint64_t total, std::uint32_t queue_pairs, std::uint64_t least,
                                  std::uint64_t most) {
  constexpr std::uint64_t kGrain = 4096;
  const auto parts = [](std::uint64_t bytes, std::uint64_t size) { return (bytes + size - 1) / size; };
  std::uint64_t bytes = std::clamp(parts(total, queue_pairs), least, most);
  bytes = parts(std::max<std::uint64_t>({bytes, parts(total, kMaxStripes), 1}), kGrain) * kGrain;
  return {bytes, static_cast<std::uint32_t>(std::max<std::uint64_t>(parts(total, bytes), 1))};
}

}  // namespace clustar::transport::verbs
