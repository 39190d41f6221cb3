// What a sender learns from its receiver.
#include <algorithm>
#include <utility>

#include "mlt/core/credit.h"
#include "mlt/core/recovery.h"
#include "mlt/core/sender.h"

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kTailPackets = 2;
constexpr std::uint32_t kMaxCredit = units(CreditShare::kMaxWindow) + 1;

}  // namespace

bool Sender::is_possible(std::uint32_t credit, std::uint32_t finished_below) {
  if (distance(credit, sent_units_) <= static_cast<std::int32_t>(kMaxCredit) &&
      distance(finished_below, messages_.base()) <= static_cast<std::int32_t>(messages_.size())) {
    return true;
  }
  ++counters_.ignored;
  return false;
}

void Sender::take_credit(std::uint32_t credit, std::uint32_t finished_below, TimePoint now) {
  if (distance(credit, credit_units_) > 0) credit_units_ = credit;
  const std::int32_t finished = distance(finished_below, messages_.base());
  for (std::int32_t i = 0; i < finished; ++i) {
    const std::uint32_t id = messages_.base() + static_cast<std::uint32_t>(i);
    Message& message = messages_[id];
    if (message.state == SendState::kSent) finish(id, message, SendState::kOver, true, now);
    receive_posted(message, now);
  }
  heard(now);
}

void Sender::on_posted(const Posted& posted, TimePoint now) {
  chosen_.reset();
  if (!is_possible(posted.credit_units, messages_.base())) return;
  take_credit(posted.credit_units, messages_.base(), now);
  const auto sent = tag_sends_.find(posted.tag);
  const std::int32_t later = sent == tag_sends_.end() ? 0 : distance(sent->second, posted.tag_seq);
  if (later > 0) {
    // At least so many messages are not before it: with one tag it is the first that is looked at.
    const auto window = static_cast<std::int32_t>(messages_.end() - messages_.base());
    for (std::int32_t back = later; back <= window; ++back) {
      Message& message = messages_[messages_.end() - static_cast<std::uint32_t>(back)];
      if (message.open.tag != posted.tag || message.open.tag_seq != posted.tag_seq) continue;
      receive_posted(message, now);
      return;
    }
    return;
  }
  const bool known = std::any_of(posted_early_.begin(), posted_early_.end(), [&](const Ready& ready) {
    return ready.tag == posted.tag && ready.tag_seq == posted.tag_seq;
  });
  if (known) return;
  if (posted_early_.size() >= options_.max_messages) {
    ++counters_.ignored;
    return;
  }
  posted_early_.push_back({posted.tag, posted.tag_seq});
}

void Sender::on_ack(const Ack& ack, TimePoint now) {
  chosen_.reset();
  if (!is_possible(ack.credit_units, ack.finished_below)) return;
  const TimePoint newest = newest_delivered_;
  for (std::size_t i = 0; i < ack.count; ++i) on_block(ack.blocks[i], now);
  wake_tails(newest, now);
  take_credit(ack.credit_units, ack.finished_below, now);
  pop_settled();
}

// `newest`: newest_delivered_ before what has just been heard.
void Sender::wake_tails(TimePoint newest, TimePoint now) {
  if (!tails_wait_ || newest_delivered_ <= newest) return;
  tails_wait_ = false;
  for (Lane& lane : lanes_) {
    if (!lane.records.empty()) check_losses_at(lane, now + rtt_.srtt() / 4);
  }
}

void Sender::on_block(const AckBlock& block, TimePoint now) {
  if (block.path >= lanes_.paths() || !lanes_.has(block.traffic_class)) {
    ++counters_.ignored;
    return;
  }
  Lane& lane = lanes_[lanes_.number(block.path, block.traffic_class)];
  const std::uint32_t age = lane.records.end() - block.largest;  // 1: the latest that was sent
  if (age == 0 || age > lane.sent) {
    ++counters_.ignored;
    return;
  }
  const std::uint16_t marks = static_cast<std::uint16_t>(block.marked - lane.marked);
  const bool news = !lane.acked || distance(block.largest, lane.largest) > 0;
  Duration rtt{};
  if (news) {
    if (lane.records.contains(block.largest) && !lane.records[block.largest].settled) {
      rtt = now - lane.records[block.largest].sent_at - std::chrono::microseconds(block.delay_us);
      if (rtt > Duration::zero()) rtt_.sample(rtt, now);
    } else if (lane.doubted && distance(block.largest, *lane.doubted) <= 0) {
      // Its record may be gone; it left no later than the one that is known.
      rtt_.at_least(now - lane.doubted_sent_at - std::chrono::microseconds(block.delay_us), now);
      lane.doubted.reset();
    }
    lane.largest = block.largest;
    lane.acked = paths_[block.path].acked = true;
    lane.marked = block.marked;
  }
  std::uint64_t delivered = 0;
  std::uint32_t packets = 0;
  const auto deliver = [&](std::uint32_t seq) {
    if (!lane.records.contains(seq) || lane.records[seq].settled) return;
    delivered += lane.records[seq].bytes;
    ++packets;
    settle(lane.records[seq], true, now);
  };
  lane.called_lost.look(block, reordering_);
  deliver(block.largest);
  for (std::uint32_t i = 0; i < 64; ++i) {
    if ((block.before >> i & 1) != 0) deliver(block.largest - 1 - i);
  }
  if (!news && delivered == 0 && goes_back(options_.recovery)) go_back(lane, now);
  find_losses(lane, Asked::kByAck, now);
  credit_delivery(block.path, packets, delivered, news ? marks : 0, rtt, now);
}

// After the losses that the same packet showed, as PathSelector wants it. `rtt`: 0 when it was not measured.
void Sender::credit_delivery(std::uint8_t path, std::uint32_t packets, std::uint64_t bytes, std::uint32_t marks,
                             Duration rtt, TimePoint now) {
  if (packets == 0) return;
  if (rtt <= Duration::zero()) rtt = rtt_.srtt();
  for (std::uint32_t i = 0; i < packets; ++i) selector_.on_ack(path, rtt, i < marks, now);
  paths_[path].lost_in_row = 0;
  congestion_.on_ack(bytes, bytes * std::min(marks, packets) / packets, rtt, rtt_.min_rtt(), now);
  pacer_.set_rate(std::min(options_.line_rate, congestion_.rate_bytes_per_s(rtt_.srtt())), now);
}

// The receiver repeated itself: something came out of order there, and was thrown away with all behind it. Once per
// round trip, or what was sent again would be lost again.
void Sender::go_back(Lane& lane, TimePoint now) {
  if (lane.records.empty() || lane.records[lane.records.base()].sent_at + rtt_.min_rtt() > now) return;
  for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
    if (lane.records[seq].settled) continue;
    lose(lane, lane.records[seq], seq == lane.records.base() ? Evidence::kOrder : Evidence::kDiscarded, now);
  }
}

// The packet is no longer on its way.
void Sender::settle(Record& record, bool delivered, TimePoint now) {
  record.settled = true;
  if (delivered) newest_delivered_ = std::max(newest_delivered_, record.sent_at);
  in_flight_ -= record.bytes;
  if (record.uncredited) uncredited_bytes_ -= record.bytes;
  if (!messages_.contains(record.message)) return;
  Message& message = messages_[record.message];
  if (message.done()) return;
  message.in_flight.clear(record.index);
  if (!delivered) return;
  touch(message, now);
  message.tail_again = false;
  if (record.with_open) know_open(message);
  if (message.stop_windows.size() > 0) return;  // it came after the end, and counts as missing
  if (message.delivered.set(record.index) && message.resend.clear(record.index)) --resends_;
  if (message.open.tolerant && quiet(message)) make_probe_due(message);
}

// All was sent, nothing is on its way or due, and something is missing: the receiver need not wait before it decides.
bool Sender::quiet(const Message& message) const { return nothing_flies(message) && !message.delivered.all(); }

void Sender::find_losses(Lane& lane, Asked asked, TimePoint now) {
  lane.lost_at = TimePoint::max();
  const Duration patience = rtt_.srtt() + rtt_.srtt() / 4;
  std::uint32_t seq = lane.records.base();
  for (; lane.acked && seq != lane.records.end() && distance(seq, lane.largest) < 0; ++seq) {
    Record& record = lane.records[seq];
    if (record.settled) continue;
    const TimePoint late = record.sent_at + patience;
    // Of earlier ones the latest block tells nothing, and the one that does may be on its way.
    const std::int32_t behind = distance(lane.largest, seq);
    const bool passed = behind >= reordering_.packets() && behind <= AckBlock::kBefore;
    if (passed || late <= now) {
      lane.called_lost.add(seq, reordering_);
      lose(lane, record, Evidence::kOrder, now);
    } else {
      check_losses_at(lane, late);
    }
  }
  find_lost_tail(lane, seq, asked, now);
  pop_records(lane);
}

void Sender::check_losses_at(Lane& lane, TimePoint at) {
  lane.lost_at = std::min(lane.lost_at, at);
  loss_at_ = std::min(loss_at_, at);
}

// What is behind the latest that came by this lane, when nothing follows it there because the next burst took another
// path. As in RFC 8985, section 6.2: lost, when something that left later has come, by whatever lane, and this had the
// time to do so as well. The lanes' queues differ, hence the long patience; acknowledgements of one moment come one by
// one, hence none is lost within a quarter of a round trip after one of them. The receiver acknowledges once, so all of
// the tail may have arrived and only that be lost: one packet is given up, and of the others the receiver is asked.
void Sender::find_lost_tail(Lane& lane, std::uint32_t seq, Asked asked, TimePoint now) {
  if (!loses_by_time(options_.recovery)) return;
  while (seq != lane.records.end() && lane.records[seq].settled) ++seq;
  if (seq == lane.records.end()) return;
  Record& first = lane.records[seq];
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
  lose(lane, first, Evidence::kTime, now);
  bool more = false;
  for (++seq; seq != lane.records.end(); ++seq) {
    const Record& record = lane.records[seq];
    if (record.settled) continue;
    more = true;
    if (messages_.contains(record.message) && !messages_[record.message].done()) {
      make_probe_due(messages_[record.message]);
    }
  }
  lane.tail_at = now + rtt_.patience();
  if (more) check_losses_at(lane, lane.tail_at);
}

// By when an acknowledgement would tell of this packet, the first that is not settled: when the next has arrived that
// asked for one, or after the receiver's own delay (RFC 9002's max_ack_delay), which is as long as ours.
TimePoint Sender::answer_due(const Lane& lane, std::uint32_t seq) const {
  const TimePoint delayed = lane.records[seq].sent_at + options_.ack_delay;
  TimePoint asked = delayed;
  for (; seq != lane.records.end() && lane.records[seq].sent_at < delayed; ++seq) {
    if (!lane.records[seq].asked) continue;
    asked = lane.records[seq].sent_at;
    break;
  }
  return asked + rtt_.patience();
}

void Sender::lose(Lane& lane, Record& record, Evidence evidence, TimePoint now) {
  ++counters_.lost;
  if (evidence != Evidence::kDiscarded) {
    congestion_.on_loss(record.bytes, now);
    selector_.on_loss(lane.path, now);
    ++paths_[lane.path].lost_in_row;
  }
  settle(record, false, now);
  if (!messages_.contains(record.message)) return;
  Message& message = messages_[record.message];
  if (message.done() || message.delivered.test(record.index)) return;
  if (!may_miss(message, record, evidence)) {
    mark_resend(message, record.index);
  } else if (message.open.tolerant && quiet(message)) {
    make_probe_due(message);
  }
}

// Whether a lost packet probably need not be sent again: the receiver decides, this only saves the round trip in which
// it would want what exceeds its budget. Once it wanted some, it wants all that are lost again. Time is no proof of a
// loss: a packet may wait in a path or a class that all others pass, and a network that loses nothing must not cost
// anything.
bool Sender::may_miss(Message& message, const Record& record, Evidence evidence) {
  if (gives_up(options_.recovery)) return true;
  if (evidence != Evidence::kOrder) return false;
  const OpenRecord& open = message.open;
  if (!open.tolerant || message.wanted || message.important.test(record.index)) return false;
  if (message.tolerated >= message_cap_packets(message.packets)) return false;
  const CollectiveId collective = collective_of(open);
  // Lost at the end it is on its way again when the receiver decides, who may do without; what was let be and is wanted
  // would cost a round trip.
  const bool end = message.state == SendState::kSent;
  if (end || !allowances_.allows(collective, open.stage, record.bytes + reserve())) return false;
  (void)allowances_.charge(collective, open.stage, record.bytes);
  ++message.tolerated;
  return true;
}

// What is lost early comes again before the message ends and costs no time, what is lost at the end a round trip: as
// much of the allowance is kept for the receiver to end it as would be lost of a quarter of what is on its way.
std::uint64_t Sender::reserve() const { return std::max<std::uint64_t>(options_.segment, in_flight_ / 4); }

// The receiver counts the message as eligible from now on, so its allowance grows here, too: never before it does
// there, or what is let be here would be wanted there, a round trip later.
void Sender::know_open(Message& message) {
  if (std::exchange(message.open_known, true) || !message.open.tolerant) return;
  allowances_.add_eligible(collective_of(message.open), message.bytes);
}

// The receiver may have given up more than what was let be here, and charged all of it.
void Sender::charge_rest(const Message& message, std::uint32_t missing) {
  if (!message.open.tolerant || missing <= message.tolerated) return;
  const CollectiveId collective = collective_of(message.open);
  const std::uint64_t bytes = std::uint64_t{missing - message.tolerated} * options_.segment;
  (void)allowances_.charge(collective, message.open.stage,
                           std::min(bytes, allowances_.headroom(collective, message.open.stage)));
}

void Sender::mark_resend(Message& message, std::uint32_t index) {
  if (message.resend.set(index)) ++resends_;
}

void Sender::receive_posted(Message& message, TimePoint now) {
  if (!message.posted && !message.done()) {
    unsent_packets_ += message.packets - message.sent;
    --unposted_;
  }
  message.posted = true;
  if (message.state == SendState::kOffered) {
    set_state(message.state, SendState::kSending);
    touch(message, now);
  } else if (message.state == SendState::kStored) {
    set_state(message.state, SendState::kOver);
    forget_probe(message);
  }
}

void Sender::on_state(const State& state, TimePoint now) {
  chosen_.reset();
  if (!is_possible(state.credit_units, state.finished_below)) return;
  const TimePoint newest = newest_delivered_;
  take_state(state, now);
  wake_tails(newest, now);
}

void Sender::take_state(const State& state, TimePoint now) {
  take_credit(state.credit_units, state.finished_below, now);
  if (!messages_.contains(state.message)) return;
  Message& message = messages_[state.message];
  if (state.matched) receive_posted(message, now);
  if (message.done()) return;
  if (state.stop && !state.matched && (!state.complete || message.state != SendState::kSent)) {
    ++counters_.ignored;
    return;
  }
  if (state.complete) {
    finish(state.message, message, state.matched ? SendState::kOver : SendState::kStored, true, now);
    return;
  }
  const bool window_known = state.base % State::kWindow == 0 && state.base + state.count <= message.packets &&
                            (state.count == State::kWindow || state.base + state.count == message.packets);
  if (!window_known || (state.stop && !message.open.tolerant && !gives_up(options_.recovery))) {
    ++counters_.ignored;
    return;
  }
  if (state.stop && message.stop_windows.size() == 0) {
    if (!message.stop_windows.reset((message.packets + State::kWindow - 1) / State::kWindow)) return;
  }
  reconcile(state.message, state, now);
  // While something flies the probe proves nothing; but it tells what was sent, which is a request for credit.
  // A question comes in several windows: one probe answers them all.
  if (state.asks && now >= message.next_answer &&
      ((message.open.tolerant && nothing_flies(message)) || lacks_credit(message))) {
    make_probe_due(message);
    message.next_answer = now + rtt_.min_rtt() / 2;
  }
  if (!state.stop) return;
  message.stop_windows.set(state.base / State::kWindow);
  if (message.stop_windows.all()) finish(state.message, message, SendState::kOver, false, now);
}

// What the receiver has and has not, against what is on its way.
void Sender::reconcile(std::uint32_t id, const State& state, TimePoint now) {
  Message& message = messages_[id];
  const auto missing = [&](std::uint32_t index) { return state.is_missing(index - state.base); };
  // What had the time to arrive before the receiver wrote this, and is not there, is lost. The last packets alone may
  // go again sooner, once, as the tail probe of RFC 8985, section 7.2, does: so few make no queue if that was wrong.
  const bool tail = state.asks && !message.tail_again && in_flight_ <= std::uint64_t{kTailPackets} * options_.segment;
  const TimePoint cutoff = now - (tail ? std::min(rtt_.patience(), 2 * rtt_.srtt()) : rtt_.patience());
  for (std::uint32_t i = 0; message.in_flight.count() > 0 && i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    std::uint32_t packets = 0;
    std::uint64_t bytes = 0;
    for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
      Record& record = lane.records[seq];
      const bool ours = !record.settled && record.message == id && record.index >= state.base &&
                        record.index < state.base + state.count;
      if (!ours) continue;
      if (!missing(record.index)) {
        ++packets;
        bytes += record.bytes;
        settle(record, true, now);
      } else if (record.sent_at <= cutoff) {
        lane.doubted = seq;
        lane.doubted_sent_at = record.sent_at;
        message.tail_again = message.tail_again || tail;
        lose(lane, record, Evidence::kTime, now);
      }
    }
    pop_records(lane);
    credit_delivery(lane.path, packets, bytes, 0, Duration::zero(), now);
  }
  if (state.want > 0) message.wanted = true;
  std::uint32_t want = state.want;
  // Of what it wants, some may be on its way again, or due; if that is lost, it goes again.
  for (std::uint32_t index = state.base; want > 0 && index < state.base + state.count; ++index) {
    const bool comes = message.in_flight.test(index) || message.resend.test(index);
    if (missing(index) && comes && !message.important.test(index)) --want;
  }
  for (std::uint32_t index = state.base; index < state.base + state.count; ++index) {
    const std::uint32_t order =
        index >= message.first ? index - message.first : index + message.packets - message.first;
    if (order >= message.sent) continue;  // nobody can have it
    if (!missing(index)) {
      if (message.delivered.set(index) && message.resend.clear(index)) --resends_;
      continue;
    }
    if (state.stop) message.delivered.clear(index);  // acknowledged when it came too late
    if (state.stop || message.in_flight.test(index) || message.resend.test(index)) continue;
    if (!message.open.tolerant || message.important.test(index)) {
      mark_resend(message, index);
    } else if (want > 0) {
      --want;
      mark_resend(message, index);
    }
  }
}

}  // namespace clustar::mlt
