// What of the options follows a path's round trip: a constant that fits a rack asks a hundred times in each round trip
// to another continent. `trip` is the round trip without queues, as far as is known.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mlt/core/options.h"

namespace clustar::mlt {

// How long an acknowledgement may wait that neither its sender asks for nor a hole makes due. Senders ask several times
// in each window.
inline Duration ack_delay(const Options& options, Duration trip) {
  constexpr Duration kMost = std::chrono::milliseconds(10);
  return std::max(options.ack_delay, std::min(trip / 4, kMost));
}

// Packets of a lane that are acknowledged at least once. Where a window is hundreds of packets, fewer acknowledgements
// tell as much.
inline std::uint32_t ack_every(const Options& options, Duration trip) {
  constexpr std::uint8_t kFarPackets = 48;  // of the 65 that one block tells
  return trip >= 2 * options.ack_delay ? std::max(options.ack_every, kFarPackets) : options.ack_every;
}

// Whether the last packet of a burst, after which another path is taken, asks for its acknowledgement. On a long path
// that would be one for each 16 KiB, where `ack_delay` and the window's own asks come often enough.
inline bool asks_at_burst_end(const Options& options, Duration trip) { return trip < 2 * options.ack_delay; }

// A peer that was not heard for so long is silent.
inline Duration silence(const Options& options, Duration trip) { return std::max(options.probe_floor, 2 * trip); }

}  // namespace clustar::mlt
