// What a receiver knows of the packets of one path and class.
#pragma once

#include <cstdint>

#include "transport/base/time.h"

namespace clustar::mlt {

struct ReceiveLane {
  std::uint8_t path = 0, traffic_class = 0;
  bool seen = false;
  bool due = false;
  std::uint8_t unacked = 0;  // since the latest block
  std::uint32_t untold = 0;  // the first of them
  std::uint16_t marked = 0;
  std::uint32_t largest = 0;
  std::uint64_t before = 0;
  TimePoint largest_at{};
  Duration largest_waited{};  // in the host, before that
};

}  // namespace clustar::mlt
