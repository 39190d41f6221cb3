// Sums of counters, with and without a switch program in the build.
#include <algorithm>

#include "bench/fabric/switch/switch_program.h"

namespace clustar::bench::fabric {

ClassCounters PortCounters::to_host() const {
  ClassCounters sum;
  for (const ClassCounters& one : classes) {
    sum.packets += one.packets;
    sum.bytes += one.bytes;
    sum.marked += one.marked;
    sum.dropped_buffer += one.dropped_buffer;
    sum.dropped_selective += one.dropped_selective;
    sum.dropped_loss += one.dropped_loss;
    sum.trimmed += one.trimmed;
    sum.largest_bytes = std::max(sum.largest_bytes, one.largest_bytes);
    sum.super_packets += one.super_packets;
  }
  sum.depth_bytes = depth_bytes;
  sum.deepest_bytes = deepest_bytes;
  return sum;
}

}  // namespace clustar::bench::fabric
