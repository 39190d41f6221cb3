// How long a thread may sleep after back-pressure: nothing tells when a provider has room again. Pure.
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/base/time.h"

namespace clustar::transport::ofi {

class Pressure {
 public:
  static constexpr Duration kPause = std::chrono::microseconds(100);

  // Packets were offered; `all`: and taken.
  void offered(bool all) {
    full_ = !all;
    pauses_ = 0;
  }
  // Who sleeps again and again without an offer between has nothing to send any more: its connection closed.
  Duration sleep() { return full_ && ++pauses_ <= kMostPauses ? kPause : Duration::max(); }

 private:
  static constexpr std::uint32_t kMostPauses = 8;  // some ask twice for one sleep

  bool full_ = false;
  std::uint32_t pauses_ = 0;
};

}  // namespace clustar::transport::ofi
