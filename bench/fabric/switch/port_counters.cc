// Sums of counters, with and without a switch program in the build.
#include <algorithm>

#include "bench/fabric/switch/switch_program.h"

namespace clustar::bench::fabric {

ClassCounters& ClassCounters::operator+=(const ClassCounters& more) {
  packets += more.packets;
  bytes += more.bytes;
  marked += more.marked;
  dropped_buffer += more.dropped_buffer;
  dropped_selective += more.dropped_selective;
  dropped_loss += more.dropped_loss;
  trimmed += more.trimmed;
  super_packets += more.super_packets;
  largest_bytes = std::max(largest_bytes, more.largest_bytes);
  deepest_bytes = std::max(deepest_bytes, more.deepest_bytes);
  depth_bytes = more.depth_bytes;
  return *this;
}

ClassCounters PortCounters::to_host() const {
  ClassCounters sum;
  for (const ClassCounters& one : classes) sum += one;
  sum.depth_bytes = depth_bytes;
  sum.deepest_bytes = deepest_bytes;
  return sum;
}

}  // namespace clustar::bench::fabric
