// How much an engine does in one turn, and how long its thread waits for what.
#pragma once

#include <chrono>
#include <cstddef>

#include "transport/base/time.h"

namespace clustar::mlt::driver {

struct EngineLimits {
  static constexpr std::size_t kBurst = 135;
  static constexpr int kReceiveBursts = 2;    // per turn
  static constexpr int kSendBursts = 4;       // per turn
  static constexpr std::size_t kGather = 16;  // small requests that may wait for each other
  static constexpr std::size_t kSmall = 16 * 1024;
  static constexpr std::size_t kLeastLanding = 32 * 1024;  // of a message: less has left before its place is known
  static constexpr std::size_t kTiny = 400;                // payload that leaves room for others in a datagram
  static constexpr std::size_t kChecksPerTurn = 32;
  static constexpr Duration kCheckInterval = std::chrono::milliseconds(1);
  // Callers that did not come for so long are taken for silent.
  static constexpr Duration kSilence = std::chrono::milliseconds(1);
  static constexpr Duration kLongestSleep = std::chrono::milliseconds(100);
  // Who holds the engine for so long does not run: what is to be done in a turn takes less, but for the fullest.
  static constexpr Duration kLongTurn = std::chrono::microseconds(500);
  static constexpr Duration kSpin = std::chrono::microseconds(50);  // of the engine's thread, after there was work
};

}  // namespace clustar::mlt::driver
