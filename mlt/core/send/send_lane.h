// What a sender keeps of the packets that are on their way.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/reordering.h"
#include "mlt/core/window.h"
#include "transport/base/time.h"

namespace clustar::mlt {

struct SentPacket {  // one packet on its way
  std::uint32_t message = 0, index = 0, bytes = 0;
  bool settled = true;
  bool with_open = false, uncredited = false, asked = false;
  TimePoint sent_at{};
  bool parity = false;  // `index` is DataHeader's; lost, it does not go again
};

// The packets of one path and class, which stay in order: a switch lets one class pass another.
struct SendLane {
  SendLane(std::uint32_t bound, std::uint8_t number) : records(bound), path(number) {}
  Window<SentPacket> records;  // by path_seq; its base is the oldest that is not settled
  std::uint8_t path;
  bool acked = false;
  std::uint16_t marked = 0;
  std::uint32_t sent = 0;  // packets; at most 2^31, the oldest that numbers tell apart
  std::uint32_t largest = 0;
  std::uint64_t unasked_bytes = 0;       // sent since a packet asked for an acknowledgement
  TimePoint lost_at = TimePoint::max();  // when to look whether unsettled records are lost
  TimePoint tail_at{};                   // not before: one of its tail was given up, and the receiver asked
  CalledLost called_lost;
  // The latest that counted as lost because it had the time to arrive: when it comes after all, that was too short.
  std::optional<std::uint32_t> doubted;
  TimePoint doubted_sent_at{};
};

}  // namespace clustar::mlt
