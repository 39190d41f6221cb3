#include "mlt/core/receive/receiver.h"

#include <algorithm>

#include "mlt/core/recovery.h"

namespace clustar::mlt {

Receiver::Receiver(const Options& options, std::uint64_t secret)
    : options_(options),
      secret_(secret),
      messages_(options.max_messages),
      receives_(options.max_messages, options.max_tags),
      staging_(options.max_staged),
      acks_(options),
      credit_(options.segment),
      asking_(options),
      decision_(options),
      trip_(options.base_rtt),
      parity_(options.max_parity) {}

std::optional<std::uint32_t> Receiver::post(std::int32_t tag, std::uint32_t length, LedgerBook& ledgers,
                                            TimePoint now) {
  if (full() || length > kMaxMessageBytes || !receives_.has_room(tag)) return std::nullopt;
  const std::uint32_t id = receives_.post(tag, length);
  credit_.posted(length);
  for (std::uint32_t m = messages_.base(); unmatched_ > 0 && m != messages_.end(); ++m) {
    const Message& message = messages_[m];
    const bool waits = message.state != ReceiveState::kUnseen && message.has_open && message.receive == kNone;
    if (waits && message.open.tag == tag && message.open.tag_seq == receives_[id].tag_seq) {
      --unmatched_;
      match(m, id, ledgers, now);
      break;
    }
  }
  return id;
}

void Receiver::release(std::uint32_t receive) { receives_.release(receive); }

Receiver::Message* Receiver::find_or_open(std::uint32_t id, std::uint32_t bytes, std::uint16_t segment, TimePoint now) {
  if (!messages_.reaches(id)) {
    if (distance(id, refused_below_) >= 0) refused_below_ = id + 1;
    return nullptr;
  }
  while (!messages_.contains(id)) messages_.push().reset();
  Message& message = messages_[id];
  if (message.state == ReceiveState::kUnseen) {
    set_state(message.state, ReceiveState::kStaging);
    message.bytes = bytes;
    message.segment = segment;
    credit_.note_segment(segment);
    message.packets = packet_count(bytes, segment);
    if (!message.got.reset(message.packets)) return nullptr;
    message.first_at = now;
    asking_.begin(message, now);
    message.loss.refused = distance(id, refused_below_) < 0;
  } else if (message.bytes != bytes || message.segment != segment) {
    return nullptr;
  }
  return &message;
}

void Receiver::take_open(std::uint32_t id, Message& message, const OpenRecord& open, LedgerBook& ledgers,
                         TimePoint now) {
  if (message.has_open) return;
  // Where its packets were put says what the message is.
  if (message.staging != kNone && message.tolerant != open.tolerant) {
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
  if (const auto receive = receives_.find(open.tag, open.tag_seq)) {
    match(id, *receive, ledgers, now);
  } else {
    ++unmatched_;
  }
}

void Receiver::match(std::uint32_t id, std::uint32_t receive_id, LedgerBook& ledgers, TimePoint now) {
  Message& message = messages_[id];
  PostedReceive& receive = receives_[receive_id];
  receive.matched = true;
  receive.message = id;
  message.receive = receive_id;
  credit_.came(receive.length);
  if (message.bytes > receive.length && !options_.cut_long) {
    set_state(message.state, ReceiveState::kTruncated);
    if (levels_differ_) find_level();
    free_staging(message);
    receive_over(message, 0, true);
    tell_over(id, message);
    return;
  }
  credit_.want(message.missing_bytes());
  if (message.staging != kNone) unstage_.push_back(receive_id);
  decision_.count_eligible(message, ledgers);
  if (message.state == ReceiveState::kStored) {
    set_state(message.state, ReceiveState::kComplete);
    receive_over(message, 0, false);
    receive.untold = false;  // what is told now says it
    tell_over(id, message);
  } else {
    set_state(message.state, ReceiveState::kArriving);
    message.silence.last_at = now;  // until now the sender could not go on
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

bool Receiver::discards(const Message& message, const DataHeader& header) const {
  return options_.recovery != nullptr && !options_.recovery->takes(header.index, message.received);
}

Placement Receiver::on_data(const DataHeader& header, const Arriving& packet, LedgerBook& ledgers, TimePoint now) {
  if (header.path >= acks_.paths() || header.secret != secret_ || packet.payload != payload_bytes(header)) {
    ++counters_.ignored;
    return {};
  }
  active_ = true;
  credit_.note_sent(header.sent_units);
  if (header.trip != 0) trip_ = header.trip * kTripUnit;
  if (distance(header.message, messages_.base()) < 0) {  // settled: a late copy
    ++counters_.duplicates;
    control_path_ = header.path;
    acks_.track(header, packet.marked, trip_, now, packet.waited);
    return {};
  }
  if (header.open) forget_below(header.open->forgotten_below, header.message);  // it may make the room for this message
  Message* message = find_or_open(header.message, header.message_bytes, header.segment, now);
  if (message == nullptr) {
    ++counters_.ignored;
    return {};
  }
  if (header.open) take_open(header.message, *message, *header.open, ledgers, now);
  if (header.parity) return on_parity(header, *message, packet, now);
  if (header.passed != 0 && message->growing()) {
    const std::uint32_t lane = acks_.lane(header);
    message->passed.note(lane, acks_.lanes(), header.passed, !header.retransmission);
  }
  message->loss.quiet = message->loss.quiet || header.quiet;
  if (!message->growing() || message->got.test(header.index)) {
    on_duplicate(header, *message, packet, now);
    return {};
  }
  return take(header, *message, packet, now);
}

void Receiver::on_duplicate(const DataHeader& header, Message& message, const Arriving& packet, TimePoint now) {
  ++counters_.duplicates;
  control_path_ = header.path;
  acks_.track(header, packet.marked, trip_, now, packet.waited);
  if (message.growing()) {
    decision_.arm_proven(message, acks_.tolerance(), now);
    note_due(message);
  } else if (message.telling.some(false, message.got, sent_of(header.message, message))) {
    states_.push_back(header.message);
  }
}

Placement Receiver::take(const DataHeader& header, Message& message, const Arriving& packet, TimePoint now) {
  if (discards(message, header)) {
    acks_.repeat(header, now);
    return {};
  }
  const Placement placement = place(message, header, packet.payload, packet.can_stage);
  if (placement.kind == Placement::Kind::kDrop) {
    message.loss.refused = true;
    ++counters_.refused;
    return {};
  }
  control_path_ = header.path;
  acks_.track(header, packet.marked, trip_, now, packet.waited);
  counters_.placed_bytes += packet.payload;
  message.received_bytes += packet.payload;
  if (message.receive != kNone) credit_.came(packet.payload);
  arrived(header.message, message, header, now);
  return placement;
}

void Receiver::arrived(std::uint32_t id, Message& message, const DataHeader& header, TimePoint now) {
  message.got.set(header.index);
  ++message.received;
  if (header.important) ++message.important;
  const std::uint32_t order = order_of(message, id, header.index);
  const bool goes_on = !header.retransmission && order >= message.sent_known;
  message.sent_known = std::max(message.sent_known, order + 1);
  asking_.on_packet(message, goes_on, trip_, now);
  if (!parity_.empty()) offer_rebuild(id, message, order / kParityBlock);
  arrived_more(id, message, now);
}

void Receiver::arrived_more(std::uint32_t id, Message& message, TimePoint now) {
  if (message.received == message.packets) {
    finish(id, message, message.receive == kNone ? ReceiveState::kStored : ReceiveState::kComplete);
    ask_about_next(now);
  } else {
    arm(message, now);
  }
}

// Messages that the sender has forgotten need no memory here, once they have a receive. `id` is the message whose
// packet said so.
void Receiver::forget_below(std::uint32_t below, std::uint32_t id) {
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
  const PostedReceive& receive = receives_[messages_[id].receive];
  return receive.used && receive.matched && receive.message == id;
}

void Receiver::on_probe(const Probe& probe, LedgerBook& ledgers, TimePoint now) {
  if (probe.secret != secret_) {
    ++counters_.ignored;
    return;
  }
  active_ = true;
  control_path_ = static_cast<std::uint8_t>((control_path_ + 1) % acks_.paths());  // the last answer may be lost there
  credit_.note_sent(probe.sent_units);
  if (distance(probe.message, messages_.base()) < 0) {
    forgotten_probe_ = probe.message;
    return;
  }
  forget_below(probe.open.forgotten_below, probe.message);
  Message* message = find_or_open(probe.message, probe.message_bytes, probe.segment, now);
  if (message == nullptr) {
    ++counters_.ignored;
    acks_.make_due();  // no room yet, as long as an earlier message waits for its receive; but somebody is here
    return;
  }
  take_open(probe.message, *message, probe.open, ledgers, now);
  if (message->growing() && probe.sent > message->sent_known) {
    message->sent_known = probe.sent;
    arm(*message, now);
  }
  if (probe.quiet) decision_.arm_quiet(*message, now);
  note_due(*message);
  message->asks =
      false;  // its question is answered: windows that are still due would ask again, forever on a slow line
  if (message->telling.answer(probe.window, message->packets)) states_.push_back(probe.message);
}

void Receiver::grant(std::uint32_t window) {
  if (credit_.grant(window)) acks_.make_due();
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
  std::uint32_t receives = 0, staging = 0, unmatched = 0;
  for (const PostedReceive& receive : receives_) {
    if (!receive.used) continue;
    if (!receive.matched) {
      demand += receive.length;
      ++receives;
    } else if (messages_.contains(receive.message) && messages_[receive.message].state == ReceiveState::kArriving) {
      demand += messages_[receive.message].missing_bytes();
      ++receives;
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
  for (const ParityStore::Row& row : parity_.rows()) {
    if (!messages_.contains(row.message) || messages_[row.message].state != ReceiveState::kArriving) return false;
  }
  if (distance(finished_below_, messages_.base()) < 0 || parity_.taken() != parity_.rows().size()) return false;
  return demand == credit_.demand() && receives == credit_.receives() && unmatched == unmatched_ &&
         staging == staging_.taken();
}

}  // namespace clustar::mlt
