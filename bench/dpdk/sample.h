// What a loop has carried in a while.
#pragma once

#include <cstdint>

namespace clustar::bench::dpdk {

struct Sample {
  double seconds = 0;
  std::uint64_t packets = 0;  // that the receiving port has counted
  std::uint64_t bytes = 0;    // of payload that arrived

  double packets_per_second() const { return static_cast<double>(packets) / seconds; }
  double gigabits_per_second() const { return static_cast<double>(bytes) * 8e-9 / seconds; }
};

}  // namespace clustar::bench::dpdk
