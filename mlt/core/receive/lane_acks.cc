#include "mlt/core/receive/lane_acks.h"

#include <algorithm>

#include "mlt/core/trip_times.h"

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kBlockPackets = 48;  // of the 65 that a block tells: the rest is for those that come late
constexpr std::size_t kMostFullBlocks = 256;

}  // namespace

LaneAcks::LaneAcks(const Options& options)
    : options_(options), lanes_(options.paths), reordering_(options.reorder_packets) {}

std::uint32_t LaneAcks::lane(const DataHeader& header) {
  return lanes_.number_or_make(header.path, header.traffic_class, [&](std::uint8_t path) {
    Lane lane;
    lane.path = path;
    lane.traffic_class = header.traffic_class;
    return lane;
  });
}

void LaneAcks::track(const DataHeader& header, bool marked, Duration trip, TimePoint now, Duration waited) {
  Lane& lane = lanes_[this->lane(header)];
  const bool slides_out = lane.unacked > 0 && distance(header.path_seq, lane.untold) > AckBlock::kBefore;
  if ((lane.unacked >= kBlockPackets || slides_out) && full_blocks_.size() < kMostFullBlocks) {
    keep_block(lane, now);
    due_ = true;
  }
  const bool at_once = note(lane, header.path_seq, now, waited) || header.ack_now;
  if (marked) ++lane.marked;
  if (lane.unacked++ == 0 || distance(header.path_seq, lane.untold) < 0) lane.untold = header.path_seq;
  lane.due = true;
  if (at_once || lane.unacked >= ack_every(options_, trip)) {
    due_ = true;
  } else {
    due_at_ = std::min(due_at_, now + ack_delay(options_, trip));
  }
}

bool LaneAcks::note(Lane& lane, std::uint32_t seq, TimePoint now, Duration waited) {
  const std::int32_t ahead = lane.seen ? distance(seq, lane.largest) : 0;
  if (!lane.seen) {
    lane.seen = true;
    lane.largest = seq;
    lane.largest_at = now;
    lane.largest_waited = waited;
    return seq != 0;
  }
  if (ahead > 0) {
    lane.before = ahead >= AckBlock::kBefore ? 0 : lane.before << ahead;
    if (ahead <= AckBlock::kBefore) lane.before |= std::uint64_t{1} << (ahead - 1);
    lane.largest = seq;
    lane.largest_at = now;
    lane.largest_waited = waited;
    // A hole is told when it is seen, and when the sender takes it for lost by what it is told.
    const std::uint32_t reach = options_.reorder_packets;
    const bool proven = lane.largest >= reach && (lane.before >> (reach - 1) & 1) == 0;
    return ahead > 1 || proven;
  }
  if (ahead == 0 || ahead < -AckBlock::kBefore) return false;
  const std::uint64_t its_bit = std::uint64_t{1} << (-ahead - 1);
  if ((lane.before & its_bit) == 0) reordering_.on_late(-ahead);
  lane.before |= its_bit;
  return true;
}

void LaneAcks::repeat(const DataHeader& header, TimePoint now) {
  Lane& lane = lanes_[this->lane(header)];
  // What came before it is news, and nobody goes back for that.
  if (lane.unacked > 0 && full_blocks_.size() < kMostFullBlocks) keep_block(lane, now);
  lane.due = due_ = true;
}

void LaneAcks::keep_block(Lane& lane, TimePoint now) { full_blocks_.push_back(block_of(lane, now)); }

AckBlock LaneAcks::block_of(Lane& lane, TimePoint now) const {
  const auto in_us = [](Duration time) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    return static_cast<std::uint16_t>(std::clamp<std::int64_t>(us, 0, 0xffff));
  };
  lane.due = false;
  lane.unacked = 0;
  return {lane.path,
          lane.traffic_class,
          lane.marked,
          lane.largest,
          lane.before,
          in_us(now - lane.largest_at),
          in_us(lane.largest_waited)};
}

void LaneAcks::fill(Ack& ack, TimePoint now) {
  while (!full_blocks_.empty() && ack.count < Ack::kMaxBlocks) ack.blocks[ack.count++] = full_blocks_.pop_front();
  bool more = !full_blocks_.empty();
  for (std::uint32_t looked = 0; looked < lanes_.size(); ++looked) {
    Lane& lane = lanes_[next_lane_];
    if (lane.due && ack.count == Ack::kMaxBlocks) {
      more = true;
      break;
    }
    if (lane.due && lane.seen) ack.blocks[ack.count++] = block_of(lane, now);
    next_lane_ = (next_lane_ + 1) % lanes_.size();
  }
  due_ = more;
  if (!more) due_at_ = TimePoint::max();
}

void LaneAcks::on_timeout(TimePoint now) {
  if (due_at_ > now) return;
  due_ = true;
  due_at_ = TimePoint::max();
}

void LaneAcks::on_lost(std::uint32_t packets) {
  for (std::uint32_t i = 0; i < packets; ++i) reordering_.on_lost();
}

}  // namespace clustar::mlt
