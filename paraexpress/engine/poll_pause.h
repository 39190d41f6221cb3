// How long a thread that looks for messages sleeps until it looks again.
#pragma once

#include <chrono>

namespace clustar::paraexpress {

// 0: not at all, it only lets others run. The longer nothing came, the less it hurts to look later.
inline std::chrono::microseconds poll_pause(std::chrono::steady_clock::duration idle) {
  if (idle < std::chrono::microseconds(200)) return std::chrono::microseconds(0);
  return idle < std::chrono::milliseconds(20) ? std::chrono::microseconds(20) : std::chrono::microseconds(500);
}

}  // namespace clustar::paraexpress
