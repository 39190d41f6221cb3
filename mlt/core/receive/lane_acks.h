// What came by each lane, and when to tell the sender of it.
#pragma once

#include <cstdint>

#include "mlt/core/lanes.h"
#include "mlt/core/options.h"
#include "mlt/core/receive/receive_lane.h"
#include "mlt/core/reordering.h"
#include "mlt/core/wire.h"
#include "transport/base/ring.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class LaneAcks {
 public:
  explicit LaneAcks(const Options& options);

  std::uint8_t paths() const { return lanes_.paths(); }
  std::uint32_t lanes() const { return lanes_.size(); }
  // Number of the packet's lane, made if there is none yet. Only for a path < paths().
  std::uint32_t lane(const DataHeader& header);

  // The packet came, for the first time or not. `trip`: Receiver::round_trip(); `waited`: Endpoint::Arriving's.
  void track(const DataHeader& header, bool marked, Duration trip, TimePoint now, Duration waited = {});
  // It came and counts for nothing: what its lane is known to have brought is told once more.
  void repeat(const DataHeader& header, TimePoint now);

  // An acknowledgement is due, for what came or for what else it carries.
  bool due() const { return due_; }
  void make_due() { due_ = true; }
  // Blocks for the next acknowledgement, oldest first, so that a sender never takes for lost what a later block no
  // longer tells.
  void fill(Ack& ack, TimePoint now);

  TimePoint next_timeout() const { return due_at_; }
  void on_timeout(TimePoint now);

  // Later packets of a lane that make an earlier one lost.
  std::int32_t tolerance() const { return reordering_.packets(); }
  // So many packets never came.
  void on_lost(std::uint32_t packets);

 private:
  using Lane = ReceiveLane;
  AckBlock block_of(Lane& lane, TimePoint now) const;
  void keep_block(Lane& lane, TimePoint now);
  // The packet is the lane's latest, or one before; true: the sender should know at once.
  bool note(Lane& lane, std::uint32_t seq, TimePoint now, Duration waited);

  const Options& options_;
  Lanes<Lane> lanes_;
  ReorderTolerance reordering_;
  std::uint32_t next_lane_ = 0;
  Ring<AckBlock> full_blocks_;  // of lanes on which more came since the last acknowledgement than a block tells
  bool due_ = false;
  TimePoint due_at_ = TimePoint::max();
};

}  // namespace clustar::mlt
