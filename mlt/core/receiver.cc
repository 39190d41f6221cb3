#include "mlt/core/receiver.h"

#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kBlockPackets = 48;  // of the 65 that a block tells: the rest is for those that come late
constexpr std::size_t kMostFullBlocks = 256;

}  // namespace

Receiver::Receiver(const Options& options, std::uint64_t secret)
    : options_(options),
      secret_(secret),
      messages_(options.max_messages),
      lanes_(options.paths),
      reordering_(options.reorder_packets),
      longest_packet_(options.segment) {}

std::optional<std::uint32_t> Receiver::post(std::int32_t tag, std::uint32_t length, LedgerBook& ledgers,
                                            TimePoint now) {
  if (full() || length > kMaxMessageBytes || (!tag_posts_.contains(tag) && tag_posts_.size() >= options_.max_tags))
    return std::nullopt;
  std::uint32_t id = 0;
  if (free_receives_.empty()) {
    id = static_cast<std::uint32_t>(receives_.size());
    receives_.emplace_back();
  } else {
    id = free_receives_.back();
    free_receives_.pop_back();
  }
  Receive& receive = receives_[id];
  receive = Receive{};
  receive.used = true;
  receive.tag = tag;
  receive.tag_seq = tag_posts_[tag]++;
  receive.length = length;
  receive.posted_due = true;
  posts_.push_back(id);
  ++outstanding_;
  demand_ += length;
  for (std::uint32_t m = messages_.base(); unmatched_ > 0 && m != messages_.end(); ++m) {
    const Message& message = messages_[m];
    const bool waits = message.state != ReceiveState::kUnseen && message.has_open && message.receive == kNone;
    if (waits && message.open.tag == tag && message.open.tag_seq == receive.tag_seq) {
      --unmatched_;
      match(m, id, ledgers, now);
      break;
    }
  }
  return id;
}

void Receiver::release(std::uint32_t receive) {
  receives_[receive].used = false;
  free_receives_.push_back(receive);
}

Receiver::Message* Receiver::find_or_open(std::uint32_t id, std::uint32_t bytes, std::uint16_t segment, TimePoint now) {
  if (!messages_.reaches(id)) {
    if (distance(id, refused_below_) >= 0) refused_below_ = id + 1;
    return nullptr;
  }
  while (!messages_.contains(id)) {
    Message& fresh = messages_.push();
    PacketBitmap storage = std::move(fresh.got);
    Passed passed = std::move(fresh.passed);
    fresh = Message{};
    fresh.got = std::move(storage);
    fresh.passed = std::move(passed);
    fresh.passed.reset();
  }
  Message& message = messages_[id];
  if (message.state == ReceiveState::kUnseen) {
    set_state(message.state, ReceiveState::kStaging);
    message.bytes = bytes;
    message.segment = segment;
    longest_packet_ = std::max(longest_packet_, segment);
    message.packets = packet_count(bytes, segment);
    if (!message.got.reset(message.packets)) return nullptr;
    message.first_at = message.last_at = now;
    message.pause = pause_;
    message.refused = distance(id, refused_below_) < 0;
  } else if (message.bytes != bytes || message.segment != segment) {
    return nullptr;
  }
  return &message;
}

// Where its packets were put says what the message is.
bool Receiver::contradicts(const Message& message, const OpenRecord& open) const {
  return message.staging != kNone && message.tolerant != open.tolerant;
}

void Receiver::take_open(std::uint32_t id, Message& message, const OpenRecord& open, LedgerBook& ledgers,
                         TimePoint now) {
  if (message.has_open) return;
  if (contradicts(message, open)) {
    ++counters_.ignored;
    return;
  }
  message.has_open = true;
  message.tolerant = open.tolerant;
  message.open = open;
  if (open.level != level_) {
    levels_differ_ = true;
    find_level();
  }
  for (std::uint32_t r = 0; r < receives_.size(); ++r) {
    const Receive& receive = receives_[r];
    if (receive.used && !receive.matched && receive.tag == open.tag && receive.tag_seq == open.tag_seq) {
      match(id, r, ledgers, now);
      return;
    }
  }
  ++unmatched_;
}

void Receiver::match(std::uint32_t id, std::uint32_t receive_id, LedgerBook& ledgers, TimePoint now) {
  Message& message = messages_[id];
  Receive& receive = receives_[receive_id];
  receive.matched = true;
  receive.message = id;
  message.receive = receive_id;
  demand_ -= receive.length;
  if (message.bytes > receive.length && !options_.cut_long) {
    set_state(message.state, ReceiveState::kTruncated);
    if (levels_differ_) find_level();
    free_staging(message);
    receive_over();
    done_.push_back({receive_id, message.bytes, 0, true});
    tell_over(id, message);
    return;
  }
  demand_ += message.bytes - message.received_bytes;
  if (message.staging != kNone) unstage_.push_back(receive_id);
  count_eligible(message, ledgers);
  if (message.state == ReceiveState::kStored) {
    set_state(message.state, ReceiveState::kComplete);
    receive_over();
    done_.push_back({receive_id, message.bytes, 0, false});
    receive.posted_due = false;  // what is told now says it
    tell_over(id, message);
  } else {
    set_state(message.state, ReceiveState::kArriving);
    message.last_at = now;  // until now the sender could not go on
    arm(message, now);
  }
}

// Of messages that still come. With none of them it stays what it was: the next is likely to be alike.
void Receiver::find_level() {
  std::uint8_t best = kMaxLevel + 1;
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    const Message& message = messages_[id];
    if (message.growing() && message.has_open) best = std::min(best, message.open.level);
  }
  if (best <= kMaxLevel) level_ = best;
}

void Receiver::receive_over() {
  --outstanding_;
  if (outstanding_ == 0) active_ = false;
}

// What the peer may ask for is this end's to say.
bool Receiver::may_lose(const Message& message) const {
  return message.open.tolerant && message.open.tolerance_ppm <= options_.max_tolerance_ppm;
}

void Receiver::count_eligible(Message& message, LedgerBook& ledgers) {
  if (!may_lose(message) || message.eligible_counted) return;
  message.eligible_counted = true;
  const OpenRecord& open = message.open;
  ledgers.open(collective_of(open), {open.collective_bytes, open.ranks, open.edges, open.tolerance_ppm});
  ledgers.add_eligible(collective_of(open), message.bytes);
}

bool Receiver::discards(const Message& message, const DataHeader& header) const {
  return options_.recovery != nullptr && !options_.recovery->takes(header.index, message.received);
}

Placement Receiver::on_data(const DataHeader& header, std::uint32_t payload, bool marked, LedgerBook& ledgers,
                            TimePoint now, bool can_stage) {
  if (header.path >= lanes_.paths() || header.secret != secret_ ||
      payload != packet_bytes(header.index, header.message_bytes, header.segment)) {
    ++counters_.ignored;
    return {};
  }
  active_ = true;
  note_sent(header.sent_units);
  if (distance(header.message, messages_.base()) < 0) {  // settled: a late copy
    ++counters_.duplicates;
    track_lane(header, marked, now);
    return {};
  }
  if (header.open) settle(header.open->settled_below, header.message);  // it may make the room for this message
  Message* message = find_or_open(header.message, header.message_bytes, header.segment, now);
  if (message == nullptr) {
    ++counters_.ignored;
    return {};
  }
  if (header.open) take_open(header.message, *message, *header.open, ledgers, now);
  const bool over = !message->growing();
  if (header.passed != 0 && !over) {
    const std::uint32_t number = lane_number(header);
    message->passed.note(number, lanes_.size(), header.passed, !header.retransmission);
  }
  message->settled = message->settled || header.settled;
  if (over || message->got.test(header.index)) {
    ++counters_.duplicates;
    track_lane(header, marked, now);
    if (over && message->telling.some(false, message->got, sent_of(header.message, *message))) {
      states_.push_back(header.message);
    }
    if (!over) arm_proven(*message, now);
    return {};
  }
  if (discards(*message, header)) {
    Lane& lane = lane_of(header);
    // What came before it is news, and nobody goes back for that.
    if (lane.unacked > 0 && full_blocks_.size() < kMostFullBlocks) full_blocks_.push_back(block_of(lane, now));
    lane.due = ack_due_ = true;
    return {};
  }
  const Placement placement = place(*message, header, payload, can_stage);
  if (placement.kind == Placement::Kind::kDrop) {
    message->refused = true;
    ++counters_.refused;
    return {};
  }
  track_lane(header, marked, now);
  counters_.placed_bytes += payload;
  message->received_bytes += payload;
  if (message->receive != kNone) demand_ -= payload;
  arrived(header.message, *message, header, now);
  return placement;
}

void Receiver::arrived(std::uint32_t id, Message& message, const DataHeader& header, TimePoint now) {
  message.got.set(header.index);
  ++message.received;
  if (header.important) ++message.important;
  const std::uint32_t order = order_of(message, id, header.index);
  const bool goes_on = !header.retransmission && order >= message.sent_known;
  message.sent_known = std::max(message.sent_known, order + 1);
  // A pause for want of credit or of the sender's processor says nothing about the sender's pace.
  const Duration gap = std::min(now - message.last_at, options_.probe_floor);
  message.pause -= message.pause / 32;
  // When it was asked for and only what is sent again comes, losses made the pause and not the sender.
  if (message.received > 1 && (message.asked == 0 || goes_on)) message.pause = std::max(gap, message.pause);
  pause_ = message.pause;
  message.last_at = now;
  if (message.received == message.packets) {
    finish(id, message, message.receive == kNone ? ReceiveState::kStored : ReceiveState::kComplete);
    ask_about_next(now);
  } else {
    arm(message, now);
  }
}

std::uint32_t Receiver::lane_number(const DataHeader& header) {
  return lanes_.number_or_make(header.path, header.traffic_class, [&](std::uint8_t path) {
    Lane lane;
    lane.path = path;
    lane.traffic_class = header.traffic_class;
    return lane;
  });
}

void Receiver::track_lane(const DataHeader& header, bool marked, TimePoint now) {
  Lane& lane = lane_of(header);
  control_path_ = header.path;
  const std::int32_t ahead = lane.seen ? distance(header.path_seq, lane.largest) : 0;
  const bool slides_out = lane.unacked > 0 && distance(header.path_seq, lane.untold) > AckBlock::kBefore;
  if ((lane.unacked >= kBlockPackets || slides_out) && full_blocks_.size() < kMostFullBlocks) {
    full_blocks_.push_back(block_of(lane, now));
    ack_due_ = true;
  }
  bool now_due = header.ack_now;
  if (!lane.seen) {
    lane.seen = true;
    lane.largest = header.path_seq;
    lane.largest_at = now;
    now_due = now_due || header.path_seq != 0;
  } else if (ahead > 0) {
    lane.before = ahead >= 64 ? 0 : lane.before << ahead;
    if (ahead <= 64) lane.before |= std::uint64_t{1} << (ahead - 1);
    lane.largest = header.path_seq;
    lane.largest_at = now;
    // A hole is told when it is seen, and when the sender takes it for lost by what it is told.
    const std::uint32_t reach = options_.reorder_packets;
    const bool proven = lane.largest >= reach && (lane.before >> (reach - 1) & 1) == 0;
    now_due = now_due || ahead > 1 || proven;
  } else if (ahead < 0 && ahead >= -AckBlock::kBefore) {
    const std::uint64_t its_bit = std::uint64_t{1} << (-ahead - 1);
    if ((lane.before & its_bit) == 0) reordering_.on_late(-ahead);
    lane.before |= its_bit;
    now_due = true;
  }
  if (marked) ++lane.marked;
  if (lane.unacked++ == 0 || distance(header.path_seq, lane.untold) < 0) lane.untold = header.path_seq;
  lane.due = true;
  if (now_due || lane.unacked >= options_.ack_every) {
    ack_due_ = true;
  } else {
    ack_at_ = std::min(ack_at_, now + options_.ack_delay);
  }
}

void Receiver::finish(std::uint32_t id, Message& message, ReceiveState state) {
  set_state(message.state, state);
  if (levels_differ_) find_level();
  message.decide_at = message.ask_at = TimePoint::max();
  const bool partial = state == ReceiveState::kPartial;
  const std::uint32_t missing = message.bytes - message.received_bytes;
  if (message.receive != kNone) {
    demand_ -= missing;
    receive_over();
    done_.push_back({message.receive, message.bytes, missing, false});
  }
  if (partial) counters_.missing_bytes += missing;
  for (std::uint32_t packet = message.received; partial && packet < message.packets; ++packet) reordering_.on_lost();
  tell_over(id, message);
}

void Receiver::repeat_ends() {
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    if (messages_[id].over()) tell_all(id, messages_[id]);
  }
  ack_due_ = true;
}

void Receiver::advance_finished() {
  const auto finished = [](const Message& message) {
    return message.state == ReceiveState::kComplete || message.state == ReceiveState::kTruncated;
  };
  while (messages_.contains(finished_below_) && finished(messages_[finished_below_])) ++finished_below_;
}

void Receiver::tell_over(std::uint32_t id, Message& message) {
  advance_finished();
  if (distance(finished_below_, id) > 0 && message.state == ReceiveState::kComplete) {
    ack_due_ = true;  // it says so
  } else {
    tell_all(id, message);
  }
}

// Messages that the sender has forgotten need no memory here, once they have a receive. `id` is the message whose
// packet said so.
void Receiver::settle(std::uint32_t below, std::uint32_t id) {
  if (distance(below, id) > 0 || distance(below, messages_.base()) <= 0) return;
  while (!messages_.empty() && distance(messages_.base(), below) < 0) {
    const Message& first = messages_[messages_.base()];
    if (!first.over() || first.telling.due() || held(messages_.base())) break;
    messages_.pop();
  }
  if (distance(finished_below_, messages_.base()) < 0) finished_below_ = messages_.base();
  if (distance(refused_below_, messages_.base()) < 0) refused_below_ = messages_.base();
  advance_finished();
}

// The caller may still ask for its staged packets or its missing ranges.
bool Receiver::held(std::uint32_t id) const {
  const Receive& receive = receives_[messages_[id].receive];
  return receive.used && receive.matched && receive.message == id;
}

void Receiver::on_probe(const Probe& probe, LedgerBook& ledgers, TimePoint now) {
  if (probe.secret != secret_) {
    ++counters_.ignored;
    return;
  }
  active_ = true;
  control_path_ = static_cast<std::uint8_t>((control_path_ + 1) % lanes_.paths());  // the last answer may be lost there
  note_sent(probe.sent_units);
  if (distance(probe.message, messages_.base()) < 0) {
    settled_probe_ = probe.message;
    return;
  }
  settle(probe.open.settled_below, probe.message);
  Message* message = find_or_open(probe.message, probe.message_bytes, probe.segment, now);
  if (message == nullptr) {
    ++counters_.ignored;
    ack_due_ = true;  // no room yet, as long as an earlier message waits for its receive; but somebody is here
    return;
  }
  take_open(probe.message, *message, probe.open, ledgers, now);
  if (message->growing() && probe.sent > message->sent_known) {
    message->sent_known = probe.sent;
    arm(*message, now);
  }
  if (message->state == ReceiveState::kArriving && probe.settled && message->open.tolerant) {
    message->decide_at = now;
    decide_at_ = std::min(decide_at_, now);
  }
  message->asks =
      false;  // its question is answered: windows that are still due would ask again, for ever on a slow line
  if (message->telling.answer(probe.window, message->packets)) states_.push_back(probe.message);
}

SentRange Receiver::sent_of(std::uint32_t id, const Message& message) const {
  return {message.packets, first_of(id, message), message.sent_known};
}

void Receiver::tell_all(std::uint32_t id, Message& message) {
  if (message.telling.all(message.packets)) states_.push_back(id);
}

void Receiver::note_sent(std::uint32_t sent) {
  if (distance(sent, sent_units_) > 0) sent_units_ = sent;
}

void Receiver::grant(std::uint32_t window) {
  // Every packet costs whole units: more of them than the bytes would. Else what is left would grow with every packet,
  // and each be told at once.
  const std::uint64_t demand = demand_ + kUnitBytes * (outstanding_ + demand_ / options_.segment);
  const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(window, demand));
  const std::uint32_t credit = sent_units_ + units(wanted);
  if (distance(credit, credit_units_) > 0) credit_units_ = credit;
  // Often enough that the sender never waits for the rest of a window that has long arrived; the last of it at once.
  const std::int32_t untold = distance(credit_units_, told_units_);
  const std::uint32_t few = std::min(units(std::uint64_t{2} * longest_packet_), units(window) / 2);
  const std::uint32_t step = std::max({1u, few, units(window) / 8});
  if (untold >= static_cast<std::int32_t>(step) || (untold > 0 && wanted == demand)) ack_due_ = true;
}

std::optional<ReceiveDone> Receiver::poll_done() {
  if (done_.empty()) return std::nullopt;
  return done_.pop_front();
}

std::optional<std::uint32_t> Receiver::poll_unstage() {
  if (unstage_.empty()) return std::nullopt;
  return unstage_.pop_front();
}

bool Receiver::is_consistent() const {
  std::uint64_t demand = 0;
  std::uint32_t outstanding = 0, staging = 0, unmatched = 0;
  for (const Receive& receive : receives_) {
    if (!receive.used) continue;
    if (!receive.matched) {
      demand += receive.length;
      ++outstanding;
    } else if (messages_.contains(receive.message) && messages_[receive.message].state == ReceiveState::kArriving) {
      demand += messages_[receive.message].bytes - messages_[receive.message].received_bytes;
      ++outstanding;
    }
  }
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    const Message& message = messages_[id];
    if (message.staging != kNone) ++staging;
    if (message.has_open && message.receive == kNone) ++unmatched;
    const bool matched = message.state == ReceiveState::kArriving || message.over();
    if (matched != (message.receive != kNone)) return false;
    if ((matched || message.state == ReceiveState::kStored) && !message.has_open) return false;
    if (message.growing() && message.received >= message.packets) return false;
  }
  if (distance(finished_below_, messages_.base()) < 0) return false;
  return demand == demand_ && outstanding == outstanding_ && unmatched == unmatched_ &&
         staging + staging_free_.size() == staging_used_;
}

}  // namespace clustar::mlt
