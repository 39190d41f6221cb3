// How long a thread that looks for messages sleeps until it looks again.
#pragma once

#include <algorithm>
#include <chrono>

namespace clustar::paraexpress {

// 0: not at all, it only lets others run. The longer nothing came, the less it hurts to look later: an eighth of that
// time, so that what comes late comes hardly later, and cores are left to those who compute.
inline std::chrono::microseconds poll_pause(std::chrono::steady_clock::duration idle) {
  using std::chrono::microseconds;
  if (idle < microseconds(200)) return microseconds(0);
  const auto pause = std::chrono::duration_cast<microseconds>(idle / 8);
  return std::clamp(pause, microseconds(20), microseconds(500));
}

}  // namespace clustar::paraexpress
