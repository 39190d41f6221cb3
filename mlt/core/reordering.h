// How far the packets of one lane overtake each other. A network that never reorders needs three later packets to call
// one lost (RFC 5681); one that does, as a host whose cores take turns at a connection, needs more, or what is only
// late is sent again, or given up. So the tolerance grows when a packet comes that was called lost, as in RFC 8985,
// section 6.2, which counts in time where this counts in packets, and shrinks when enough of them stay away.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "mlt/core/wire.h"

namespace clustar::mlt {

class ReorderTolerance {
 public:
  static constexpr std::int32_t kMost = 48;  // packets, below what an AckBlock tells of

  explicit ReorderTolerance(std::uint8_t least) : least_(least), packets_(least) {}

  // Later packets that make an earlier one lost.
  std::int32_t packets() const { return packets_; }
  // One that was called lost came when it was so far behind.
  void on_late(std::int32_t behind) {
    packets_ = std::clamp(behind + 1, packets_, std::max(packets_, kMost));
    lost_ = 0;
  }
  void on_lost() {
    if (++lost_ < kForgets) return;
    lost_ = 0;
    packets_ = std::max(least_, packets_ / 2);
  }

 private:
  static constexpr std::uint32_t kForgets = 16;  // losses, as RFC 8985 has recoveries
  std::int32_t least_;
  std::int32_t packets_;
  std::uint32_t lost_ = 0;  // since the latest that came late
};

// The latest packets of a lane that were called lost because later ones had come: which of them come after all?
class CalledLost {
 public:
  void add(std::uint32_t seq, ReorderTolerance& tolerance) {
    Packet& oldest = packets_[next_++ % packets_.size()];
    if (oldest.away) tolerance.on_lost();
    oldest = {seq, true};
  }
  // `block`: the latest of the lane.
  void look(const AckBlock& block, ReorderTolerance& tolerance) {
    for (Packet& packet : packets_) {
      const std::int32_t behind = distance(block.largest, packet.seq);
      if (!packet.away || behind < 1 || behind > AckBlock::kBefore || (block.before >> (behind - 1) & 1) == 0) continue;
      tolerance.on_late(behind);
      packet.away = false;
    }
  }

 private:
  struct Packet {
    std::uint32_t seq = 0;
    bool away = false;
  };
  std::array<Packet, 8> packets_{};
  std::uint8_t next_ = 0;
};

}  // namespace clustar::mlt
