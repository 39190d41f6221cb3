#include "mlt/core/send/flight.h"

#include <algorithm>

#include "mlt/core/recovery.h"
#include "mlt/core/trip_times.h"

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kSentKnown = 1u << 31;  // packets of a lane: older numbers cannot be told from newer ones

RttOptions rtt_options(const Options& options) {
  RttOptions rtt;
  rtt.initial = options.initial_rtt;
  rtt.floor = options.probe_floor;
  rtt.cap = options.probe_cap;
  return rtt;
}

}  // namespace

Flight::Flight(const Options& options, std::uint8_t paths)
    : options_(options), lanes_(paths), rtt_(rtt_options(options)), reordering_(options.reorder_packets) {}

std::uint32_t Flight::lane(std::uint8_t path, std::uint8_t traffic_class) {
  return lanes_.number_or_make(path, traffic_class,
                               [this](std::uint8_t number) { return Lane(options_.max_in_flight, number); });
}

void Flight::send(std::uint32_t number, const SentPacket& packet, TimePoint now) {
  Lane& lane = lanes_[number];
  if (packet.uncredited) uncredited_bytes_ += packet.bytes;
  lane.unasked_bytes = packet.asked ? 0 : lane.unasked_bytes + packet.bytes;
  if (lane.sent < kSentKnown) ++lane.sent;
  lane.records.push() = packet;
  if (lane.records.full()) ++full_lanes_;
  if (loses_by_time(options_.recovery)) check_losses_at(lane, now + rtt_.patience());
  bytes_ += packet.bytes;
}

std::optional<Flight::Delivery> Flight::on_block(const AckBlock& block, Duration waited, FlightObserver& observer,
                                                 TimePoint now) {
  if (block.path >= lanes_.paths() || !lanes_.has(block.traffic_class)) return std::nullopt;
  Lane& lane = lanes_[lanes_.number(block.path, block.traffic_class)];
  const std::uint32_t age = lane.records.end() - block.largest;  // 1: the latest that was sent
  if (age == 0 || age > lane.sent) return std::nullopt;
  Delivery told;
  told.path = block.path;
  told.news = !lane.acked || distance(block.largest, lane.largest) > 0;
  if (told.news) sample(lane, block, waited, told, now);
  const auto deliver_one = [&](std::uint32_t seq) {
    if (lane.records.contains(seq) && !lane.records[seq].settled) deliver(lane.records[seq], told, observer, now);
  };
  lane.called_lost.look(block, reordering_);
  deliver_one(block.largest);
  for (std::uint32_t i = 0; i < AckBlock::kBefore; ++i) {
    if ((block.before >> i & 1) != 0) deliver_one(block.largest - 1 - i);
  }
  if (!told.news && told.bytes == 0 && goes_back(options_.recovery)) go_back(lane, observer, now);
  find_losses(lane, Asked::kByAck, observer, now);
  return told;
}

// Of a block that tells something later than the ones before. What waited for a processor was as late as what waited in
// the network, for code that waits for an answer; for the window it was no queue.
void Flight::sample(Lane& lane, const AckBlock& block, Duration waited, Delivery& told, TimePoint now) {
  const auto delay = std::chrono::microseconds(block.delay_us);
  if (lane.records.contains(block.largest) && !lane.records[block.largest].settled) {
    const Duration whole = now - lane.records[block.largest].sent_at - delay;
    const Duration waits = waited + std::chrono::microseconds(block.waited_us);
    told.rtt = waits < whole ? whole - waits : whole;
    if (told.rtt > Duration::zero()) rtt_.sample(whole, told.rtt, now);
  } else if (lane.doubted && distance(block.largest, *lane.doubted) <= 0) {
    // Its record may be gone; it left no later than the one that is known.
    rtt_.at_least(now - lane.doubted_sent_at - delay, now);
    lane.doubted.reset();
  }
  told.marks = static_cast<std::uint16_t>(block.marked - lane.marked);
  lane.largest = block.largest;
  lane.acked = true;
  lane.marked = block.marked;
}

Flight::Delivery Flight::on_state(std::uint32_t number, const State& state, bool tail, FlightObserver& observer,
                                  TimePoint now) {
  // What had the time to arrive before the receiver wrote this, and is not there, is lost.
  const TimePoint cutoff = now - (tail ? std::min(rtt_.patience(), 2 * rtt_.srtt()) : rtt_.patience());
  Lane& lane = lanes_[number];
  Delivery told;
  told.path = lane.path;
  for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
    SentPacket& record = lane.records[seq];
    if (record.settled || record.message != state.message) continue;
    // A state says nothing of parity. It had the time to come, too, and must not stay in the window forever.
    if (record.parity) {
      if (record.sent_at <= cutoff) lose(lane, record, Evidence::kTime, observer, now);
      continue;
    }
    if (record.index < state.base || record.index >= state.base + state.count) continue;
    if (!state.is_missing(record.index - state.base)) {
      deliver(record, told, observer, now);
    } else if (record.sent_at <= cutoff) {
      lane.doubted = seq;
      lane.doubted_sent_at = record.sent_at;
      told.lost = true;
      lose(lane, record, Evidence::kTime, observer, now);
    }
  }
  pop_records(lane);
  return told;
}

void Flight::forget(std::uint32_t message) {
  for (Lane& lane : lanes_) {
    for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
      if (!lane.records[seq].settled && lane.records[seq].message == message) settle(lane.records[seq]);
    }
    pop_records(lane);
  }
}

void Flight::settle(SentPacket& record) {
  record.settled = true;
  bytes_ -= record.bytes;
  if (record.uncredited) uncredited_bytes_ -= record.bytes;
}

void Flight::deliver(SentPacket& record, Delivery& told, FlightObserver& observer, TimePoint now) {
  ++told.packets;
  told.bytes += record.bytes;
  newest_delivered_ = std::max(newest_delivered_, record.sent_at);
  settle(record);
  observer.on_delivered(record, now);
}

void Flight::lose(Lane& lane, SentPacket& record, Evidence evidence, FlightObserver& observer, TimePoint now) {
  ++lost_;
  settle(record);
  observer.on_lost(record, lane.path, evidence, now);
}

// The receiver repeated itself: something came out of order there, and was thrown away with all behind it. Once per
// round trip, or what was sent again would be lost again.
void Flight::go_back(Lane& lane, FlightObserver& observer, TimePoint now) {
  if (lane.records.empty() || lane.records[lane.records.base()].sent_at + rtt_.min_rtt() > now) return;
  for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
    if (lane.records[seq].settled) continue;
    const bool first = seq == lane.records.base();
    lose(lane, lane.records[seq], first ? Evidence::kOrder : Evidence::kDiscarded, observer, now);
  }
}

void Flight::find_losses(Lane& lane, Asked asked, FlightObserver& observer, TimePoint now) {
  lane.lost_at = TimePoint::max();
  const Duration patience = rtt_.srtt() + rtt_.srtt() / 4;
  std::uint32_t seq = lane.records.base();
  for (; lane.acked && seq != lane.records.end() && distance(seq, lane.largest) < 0; ++seq) {
    SentPacket& record = lane.records[seq];
    if (record.settled) continue;
    const TimePoint late = record.sent_at + patience;
    // Of earlier ones the latest block tells nothing, and the one that does may be on its way.
    const std::int32_t behind = distance(lane.largest, seq);
    const bool passed = behind >= reordering_.packets() && behind <= AckBlock::kBefore;
    if (passed || late <= now) {
      lane.called_lost.add(seq, reordering_);
      lose(lane, record, Evidence::kOrder, observer, now);
    } else {
      check_losses_at(lane, late);
    }
  }
  find_lost_tail(lane, seq, asked, observer, now);
  pop_records(lane);
}

// What is behind the latest that came by this lane, when nothing follows it there because the next burst took another
// path. As in RFC 8985, section 6.2: lost, when something that left later has come, by whatever lane, and this had the
// time to do so as well. The lanes' queues differ, hence the long patience; acknowledgements of one moment come one by
// one, hence none is lost within a quarter of a round trip after one of them. The receiver acknowledges once, so all of
// the tail may have arrived and only that be lost: one packet is given up, and of the others the receiver is asked.
void Flight::find_lost_tail(Lane& lane, std::uint32_t seq, Asked asked, FlightObserver& observer, TimePoint now) {
  if (!loses_by_time(options_.recovery)) return;
  while (seq != lane.records.end() && lane.records[seq].settled) ++seq;
  if (seq == lane.records.end()) return;
  SentPacket& first = lane.records[seq];
  const TimePoint late = std::max(answer_due(lane, seq), lane.tail_at);
  if (asked == Asked::kByAck || late > now) {
    return check_losses_at(lane, std::max(late, now + rtt_.srtt() / 4));
  }
  if (first.sent_at >= newest_delivered_) {
    tails_wait_ = true;
    return;
  }
  lane.doubted = seq;
  lane.doubted_sent_at = first.sent_at;
  lose(lane, first, Evidence::kTime, observer, now);
  bool more = false;
  for (++seq; seq != lane.records.end(); ++seq) {
    if (lane.records[seq].settled) continue;
    more = true;
    observer.on_doubted(lane.records[seq]);
  }
  lane.tail_at = now + rtt_.patience();
  if (more) check_losses_at(lane, lane.tail_at);
}

void Flight::wake_tails(TimePoint newest, TimePoint now) {
  if (!tails_wait_ || newest_delivered_ <= newest) return;
  tails_wait_ = false;
  for (Lane& lane : lanes_) {
    if (!lane.records.empty()) check_losses_at(lane, now + rtt_.srtt() / 4);
  }
}

// By when an acknowledgement would tell of this packet, the first that is not settled: when the next has arrived that
// asked for one, or after the receiver's own delay (RFC 9002's max_ack_delay), which is as long as ours.
TimePoint Flight::answer_due(const Lane& lane, std::uint32_t seq) const {
  const TimePoint delayed = lane.records[seq].sent_at + ack_delay(options_, told_trip());
  TimePoint asked = delayed;
  for (; seq != lane.records.end() && lane.records[seq].sent_at < delayed; ++seq) {
    if (!lane.records[seq].asked) continue;
    asked = lane.records[seq].sent_at;
    break;
  }
  return asked + rtt_.patience();
}

void Flight::check_losses_at(Lane& lane, TimePoint at) {
  lane.lost_at = std::min(lane.lost_at, at);
  loss_at_ = std::min(loss_at_, at);
}

void Flight::on_timeout(FlightObserver& observer, TimePoint now) {
  if (loss_at_ > now) return;
  loss_at_ = TimePoint::max();
  for (Lane& lane : lanes_) {
    if (lane.lost_at <= now) find_losses(lane, Asked::kByTimer, observer, now);
    loss_at_ = std::min(loss_at_, lane.lost_at);
  }
}

void Flight::pop_records(Lane& lane) {
  if (lane.records.full() && lane.records[lane.records.base()].settled) --full_lanes_;
  while (!lane.records.empty() && lane.records[lane.records.base()].settled) lane.records.pop();
}

bool Flight::is_consistent() const {
  std::uint64_t bytes = 0;
  std::uint32_t full = 0, uncredited = 0;
  for (const Lane& lane : lanes_) {
    if (lane.records.full()) ++full;
    if (lane.lost_at < loss_at_) return false;
    for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
      const SentPacket& record = lane.records[seq];
      if (record.settled) continue;
      bytes += record.bytes;
      if (record.uncredited) uncredited += record.bytes;
    }
  }
  return full == full_lanes_ && uncredited == uncredited_bytes_ && bytes == bytes_;
}

}  // namespace clustar::mlt
