#include "mlt/core/sender.h"

#include <algorithm>
#include <utility>

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kMouseClass = 6;
constexpr std::uint32_t kMouseBytes = 16 * 1024;  // messages up to this size pass bulk
constexpr std::uint8_t kMaxBackoff = 12;

RttOptions rtt_options(const Options& options) {
  RttOptions rtt;
  rtt.initial = options.initial_rtt;
  rtt.floor = options.probe_floor;
  rtt.cap = options.probe_cap;
  return rtt;
}

}  // namespace

Sender::Sender(const Options& options, std::uint64_t secret, std::uint64_t seed)
    : options_(options),
      secret_(secret),
      rng_(seed),
      messages_(options.max_messages),
      selector_(options.mode == Mode::kGoBackN ? 1 : options.paths, options.path),
      rtt_(rtt_options(options)),
      congestion_(options.congestion),
      pacer_(options.line_rate, options.burst_bytes, TimePoint{}) {
  for (std::uint32_t i = 0; i < selector_.size(); ++i) paths_.emplace_back(options.max_in_flight);
}

std::optional<std::uint32_t> Sender::send(std::uint32_t bytes, std::int32_t tag, const SendTerms& terms,
                                          TimePoint now) {
  if (messages_.full() || bytes > kMaxMessageBytes) return std::nullopt;
  const std::uint32_t packets = packet_count(bytes, options_.segment);
  if (packets > kMaxPackets) return std::nullopt;
  if (terms.tolerant && terms.important != nullptr && terms.important->size() != packets) return std::nullopt;
  if (messages_.empty()) heard_at_ = now;
  const std::uint32_t id = messages_.end();
  Message& message = messages_.push();
  message.done = message.posted = message.open_known = message.probe_due = false;
  message.bytes = bytes;
  message.packets = packets;
  message.sent = message.scheduled = 0;
  message.backoff = 0;
  message.touched_at = now;
  message.probed_at = TimePoint{};
  const bool reset = message.delivered.reset(packets) && message.in_flight.reset(packets) &&
                     message.resend.reset(packets) && message.stop_windows.reset(0);
  if (!reset) return std::nullopt;
  message.bulk_class = bytes <= kMouseBytes ? kMouseClass : terms.bulk_class;
  OpenRecord& open = message.open = OpenRecord{};
  open.tag = tag;
  open.tag_seq = tag_sends_[tag]++;
  message.first = 0;
  message.important = PacketBitmap();
  if (terms.tolerant) {
    open.tolerant = true;
    open.stage = terms.stage;
    open.communicator = terms.communicator;
    open.collective = terms.collective;
    open.ranks = terms.ranks;
    open.edges = terms.edges;
    open.collective_bytes = terms.collective_bytes;
    open.tolerance_ppm = terms.tolerance_ppm;
    message.first = first_index(secret_, id, packets);
    if (terms.important != nullptr) {
      message.important = *terms.important;
      open.important = message.important.count();
    }
  }
  const auto early = std::find_if(posted_early_.begin(), posted_early_.end(), [&](const Ready& ready) {
    return ready.tag == tag && ready.tag_seq == open.tag_seq;
  });
  if (early != posted_early_.end()) {
    message.posted = true;
    *early = posted_early_.back();
    posted_early_.pop_back();
  }
  if (is_mouse(message)) ++unsent_mice_;
  // Without credit and without the right to begin, the receiver must learn that somebody waits; it knows when there is
  // more on the way.
  const bool may = is_mouse(message) || may_start(message, packet_bytes(message.first, bytes, options_.segment));
  if (in_flight_ == 0 && !may) make_probe_due(message);
  arm_probe(message);
  return id;
}

void Sender::make_probe_due(Message& message) {
  if (message.probe_due) return;
  message.probe_due = true;
  ++probes_due_;
}

bool Sender::may_start(const Message& message, std::uint32_t bytes) const {
  if (message.posted) return bytes == 0 || distance(credit_units_, sent_units_ + units(bytes)) >= 0;
  return options_.unscheduled_bytes > 0 &&
         (message.scheduled == 0 || message.scheduled + bytes <= options_.unscheduled_bytes);
}

Duration Sender::probe_wait(const Message& message) const {
  return std::min(options_.probe_cap, rtt_.probe_timeout() * (1 << message.backoff));
}

void Sender::arm_probe(const Message& message) {
  probe_at_ = std::min(probe_at_, message.touched_at + probe_wait(message));
}

void Sender::touch(Message& message, TimePoint now) {
  message.touched_at = now;
  message.backoff = 0;
  arm_probe(message);
}

void Sender::take_credit(std::uint32_t credit, std::uint32_t finished_below, TimePoint now) {
  if (distance(credit, credit_units_) > 0) credit_units_ = credit;
  if (distance(finished_below, messages_.end()) > 0) {
    ++counters_.ignored;
    return;
  }
  for (std::uint32_t id = messages_.base(); distance(id, finished_below) < 0; ++id) {
    if (!messages_[id].done && messages_[id].sent == messages_[id].packets) finish(id, messages_[id], true, now);
  }
  heard_at_ = now;
}

void Sender::on_posted(const Posted& posted, TimePoint now) {
  take_credit(posted.credit_units, messages_.base(), now);
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (message.open.tag == posted.tag && message.open.tag_seq == posted.tag_seq) {
      message.posted = true;
      touch(message, now);
      return;
    }
  }
  const auto sent = tag_sends_.find(posted.tag);
  const bool past = sent != tag_sends_.end() && distance(posted.tag_seq, sent->second) < 0;
  const bool known = std::any_of(posted_early_.begin(), posted_early_.end(), [&](const Ready& ready) {
    return ready.tag == posted.tag && ready.tag_seq == posted.tag_seq;
  });
  if (past || known) return;
  if (posted_early_.size() >= options_.max_messages) {
    ++counters_.ignored;
    return;
  }
  posted_early_.push_back({posted.tag, posted.tag_seq});
}

void Sender::on_ack(const Ack& ack, TimePoint now) {
  for (std::size_t i = 0; i < ack.count; ++i) on_block(ack.blocks[i], now);
  take_credit(ack.credit_units, ack.finished_below, now);
  pop_settled();
}

void Sender::on_block(const AckBlock& block, TimePoint now) {
  if (block.path >= paths_.size() || distance(block.largest, paths_[block.path].records.end()) >= 0) {
    ++counters_.ignored;
    return;
  }
  Path& path = paths_[block.path];
  const std::uint16_t marks = static_cast<std::uint16_t>(block.marked - path.marked);
  const bool news = !path.acked || distance(block.largest, path.largest) > 0;
  Duration rtt{};
  if (news) {
    if (path.records.contains(block.largest) && !path.records[block.largest].settled) {
      rtt = now - path.records[block.largest].sent_at - std::chrono::microseconds(block.delay_us);
      if (rtt > Duration::zero()) rtt_.sample(rtt, now);
    }
    path.largest = block.largest;
    path.acked = true;
    path.marked = block.marked;
  }
  std::uint64_t delivered = 0;
  std::uint32_t packets = 0;
  const auto deliver = [&](std::uint32_t seq) {
    if (!path.records.contains(seq) || path.records[seq].settled) return;
    delivered += path.records[seq].bytes;
    selector_.on_ack(block.path, rtt > Duration::zero() ? rtt : rtt_.srtt(), news && packets < marks, now);
    ++packets;
    path.lost_in_row = 0;
    settle(path.records[seq], true, now);
  };
  deliver(block.largest);
  for (std::uint32_t i = 0; i < 64; ++i) {
    if ((block.before >> i & 1) != 0) deliver(block.largest - 1 - i);
  }
  if (delivered > 0) {
    const std::uint64_t marked = news ? delivered * std::min<std::uint32_t>(marks, packets) / packets : 0;
    congestion_.on_ack(delivered, marked, rtt > Duration::zero() ? rtt : rtt_.srtt(), rtt_.min_rtt(), now);
    pacer_.set_rate(std::min(options_.line_rate, congestion_.rate_bytes_per_s(rtt_.srtt())), now);
  }
  if (options_.mode == Mode::kGoBackN && !news && delivered == 0) go_back(path, now);
  find_losses(block.path, now);
}

// The receiver repeated itself: something came out of order there, and was thrown away with all behind it. Once per
// round trip, or what was sent again would be lost again.
void Sender::go_back(Path& path, TimePoint now) {
  if (path.records.empty() || path.records[path.records.base()].sent_at + rtt_.min_rtt() > now) return;
  for (std::uint32_t seq = path.records.base(); seq != path.records.end(); ++seq) {
    if (!path.records[seq].settled) lose(0, path.records[seq], seq == path.records.base(), now);
  }
}

// The packet is no longer on its way.
void Sender::settle(Record& record, bool delivered, TimePoint now) {
  record.settled = true;
  in_flight_ -= record.bytes;
  if (!messages_.contains(record.message)) return;
  Message& message = messages_[record.message];
  if (message.done) return;
  message.in_flight.clear(record.index);
  if (!delivered) return;
  touch(message, now);
  if (record.with_open) message.open_known = true;
  if (message.delivered.set(record.index) && message.resend.clear(record.index)) --resends_;
}

void Sender::find_losses(std::uint8_t number, TimePoint now) {
  Path& path = paths_[number];
  path.lost_at = TimePoint::max();
  const Duration patience = rtt_.srtt() + rtt_.srtt() / 4;
  for (std::uint32_t seq = path.records.base(); path.acked && distance(seq, path.largest) < 0; ++seq) {
    Record& record = path.records[seq];
    if (record.settled) continue;
    const TimePoint late = record.sent_at + patience;
    if (distance(path.largest, seq) >= options_.reorder_packets || late <= now) {
      lose(number, record, true, now);
    } else {
      path.lost_at = std::min(path.lost_at, late);
    }
  }
  while (!path.records.empty() && path.records[path.records.base()].settled) path.records.pop();
}

void Sender::lose(std::uint8_t path, Record& record, bool network, TimePoint now) {
  ++counters_.lost;
  if (network) {
    congestion_.on_loss(record.bytes, now);
    selector_.on_loss(path, now);
    ++paths_[path].lost_in_row;
  }
  settle(record, false, now);
  if (!messages_.contains(record.message)) return;
  Message& message = messages_[record.message];
  if (message.done || message.delivered.test(record.index)) return;
  const bool may_miss =
      options_.mode == Mode::kStaticDeadline || (message.open.tolerant && !message.important.test(record.index));
  if (!may_miss) {
    mark_resend(message, record.index);
  } else if (message.sent == message.packets && message.in_flight.count() == 0) {
    make_probe_due(message);  // nothing later is coming that could tell the receiver that all was sent
  }
}

void Sender::mark_resend(Message& message, std::uint32_t index) {
  if (message.resend.set(index)) ++resends_;
}

void Sender::finish(std::uint32_t id, Message& message, bool complete, TimePoint now) {
  resends_ -= message.resend.count();
  if (message.probe_due) --probes_due_;
  message.probe_due = false;
  message.done = true;
  if (message.in_flight.count() > 0) settle_all_of(id, now);
  const std::uint32_t missing = complete ? 0 : message.delivered.missing();
  if (complete) message.delivered.set_range(0, message.packets);
  done_.push_back({id, missing});
}

// Acknowledgements of these packets may have been lost, or never come; nobody waits for them any more.
void Sender::settle_all_of(std::uint32_t id, TimePoint now) {
  for (Path& path : paths_) {
    for (std::uint32_t seq = path.records.base(); seq != path.records.end(); ++seq) {
      if (!path.records[seq].settled && path.records[seq].message == id) settle(path.records[seq], false, now);
    }
    while (!path.records.empty() && path.records[path.records.base()].settled) path.records.pop();
  }
}

void Sender::pop_settled() {
  while (!messages_.empty() && messages_[messages_.base()].done && done_.empty()) {
    if (next_new_ == messages_.base()) ++next_new_;
    messages_.pop();
  }
  if (messages_.empty()) probe_at_ = TimePoint::max();
}

void Sender::on_state(const State& state, TimePoint now) {
  take_credit(state.credit_units, state.finished_below, now);
  if (!messages_.contains(state.message) || messages_[state.message].done) return;
  Message& message = messages_[state.message];
  if (state.complete) {
    finish(state.message, message, true, now);
    return;
  }
  const bool window_known = state.base % State::kWindow == 0 && state.base + state.count <= message.packets &&
                            (state.count == State::kWindow || state.base + state.count == message.packets);
  if (!window_known || (state.stop && !message.open.tolerant && options_.mode != Mode::kStaticDeadline)) {
    ++counters_.ignored;
    return;
  }
  reconcile(state.message, state, now);
  if (!state.stop) return;
  if (message.stop_windows.size() == 0) {
    if (!message.stop_windows.reset((message.packets + State::kWindow - 1) / State::kWindow)) return;
  }
  message.stop_windows.set(state.base / State::kWindow);
  if (message.stop_windows.all()) finish(state.message, message, false, now);
}

// What the receiver has and has not, against what is on its way.
void Sender::reconcile(std::uint32_t id, const State& state, TimePoint now) {
  Message& message = messages_[id];
  const auto missing = [&](std::uint32_t index) {
    const std::uint32_t i = index - state.base;
    return (state.missing[i / 8] & std::byte{0x80} >> (i % 8)) != std::byte{0};
  };
  // What had the time to arrive before the receiver wrote this, and is not there, is lost.
  const TimePoint cutoff = std::max(message.probed_at, now - rtt_.srtt() - rtt_.srtt() / 4);
  if (message.in_flight.count() > 0) {
    for (std::uint32_t p = 0; p < paths_.size(); ++p) {
      Path& path = paths_[p];
      for (std::uint32_t seq = path.records.base(); seq != path.records.end(); ++seq) {
        Record& record = path.records[seq];
        const bool ours = !record.settled && record.message == id && record.index >= state.base &&
                          record.index < state.base + state.count;
        if (!ours) continue;
        if (!missing(record.index)) {
          settle(record, true, now);
        } else if (record.sent_at <= cutoff) {
          lose(static_cast<std::uint8_t>(p), record, true, now);
        }
      }
      while (!path.records.empty() && path.records[path.records.base()].settled) path.records.pop();
    }
  }
  std::uint32_t want = state.want;
  for (std::uint32_t index = state.base; index < state.base + state.count; ++index) {
    if (!missing(index)) {
      if (message.delivered.set(index) && message.resend.clear(index)) --resends_;
      continue;
    }
    const std::uint32_t order =
        index >= message.first ? index - message.first : index + message.packets - message.first;
    if (state.stop || order >= message.sent || message.in_flight.test(index) || message.resend.test(index)) continue;
    if (!message.open.tolerant || message.important.test(index)) {
      mark_resend(message, index);
    } else if (want > 0) {
      --want;
      mark_resend(message, index);
    }
  }
}

TimePoint Sender::next_timeout() const {
  TimePoint next = probe_at_;
  for (const Path& path : paths_) next = std::min(next, path.lost_at);
  return paced_ ? std::min(next, send_at_) : next;
}

void Sender::on_timeout(TimePoint now) {
  if (send_at_ <= now) paced_ = false;
  for (std::uint32_t p = 0; p < paths_.size(); ++p) {
    if (paths_[p].lost_at <= now) find_losses(static_cast<std::uint8_t>(p), now);
  }
  if (probe_at_ > now) return;
  probe_at_ = TimePoint::max();
  if (!messages_.empty() && now - heard_at_ >= options_.peer_timeout) {
    peer_lost_ = true;
    return;
  }
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (message.done) continue;
    if (message.touched_at + probe_wait(message) <= now) {
      make_probe_due(message);
      message.backoff = std::min<std::uint8_t>(message.backoff + 1, kMaxBackoff);
      // Up to a quarter early, at random: no rhythm, or what is lost in a rhythm may take every probe.
      const auto quarter = static_cast<std::uint64_t>(probe_wait(message).count() / 4);
      message.touched_at = now - Duration(static_cast<Duration::rep>(rng_.below(quarter + 1)));
    }
    arm_probe(message);
  }
}

std::optional<SendDone> Sender::poll_done() {
  if (done_.empty()) {
    pop_settled();
    return std::nullopt;
  }
  return done_.pop_front();
}

}  // namespace clustar::mlt
