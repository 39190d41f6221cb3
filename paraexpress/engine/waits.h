// How long an engine waits.
#pragma once

#include <algorithm>
#include <chrono>

#include "transport/base/time.h"

namespace clustar::paraexpress {

struct Waits {
  using Instant = std::chrono::steady_clock::time_point;

  Duration each{};                 // while nothing moves
  Instant until = Instant::max();  // in all, whatever moves

  Instant end(Instant begin) const { return until - begin < each ? until : begin + each; }
};

}  // namespace clustar::paraexpress
