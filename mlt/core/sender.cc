#include "mlt/core/sender.h"

#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kMaxBackoff = 12;
constexpr int kRareUnposted = 8;
constexpr std::uint32_t kUncreditedBytes = 16 * 1024;  // of one connection, on their way

RttOptions rtt_options(const Options& options) {
  RttOptions rtt;
  rtt.initial = options.initial_rtt;
  rtt.floor = options.probe_floor;
  rtt.cap = options.probe_cap;
  return rtt;
}

}  // namespace

Sender::Sender(const Options& options, LedgerBook& allowances, std::uint64_t secret, std::uint64_t seed)
    : options_(options),
      allowances_(allowances),
      secret_(secret),
      rng_(seed),
      messages_(options.max_messages),
      selector_(in_order(options_.recovery) ? 1 : options.paths, options.path),
      paths_(selector_.size()),
      lanes_(static_cast<std::uint8_t>(selector_.size())),
      rtt_(rtt_options(options)),
      reordering_(options.reorder_packets),
      congestion_(options.congestion),
      pacer_(options.line_rate, options.pace_bytes > 0 ? options.pace_bytes : options.burst_bytes, TimePoint{}) {
  congestion_.set_segment(options.segment);
  congestion_.set_base_rtt(options.base_rtt);
}

std::optional<std::uint32_t> Sender::send(std::uint32_t bytes, std::int32_t tag, const SendTerms& terms, TimePoint now,
                                          std::uint64_t arrival) {
  if (messages_.full() || bytes > kMaxMessageBytes) return std::nullopt;
  const std::uint32_t packets = packet_count(bytes, options_.segment);
  if (packets > kMaxPackets) return std::nullopt;
  if (terms.tolerant && terms.important != nullptr && terms.important->size() != packets) return std::nullopt;
  if (terms.tolerant && terms.tolerance_ppm > options_.max_tolerance_ppm) return std::nullopt;
  // An empty message has nothing to lose.
  const bool tolerant = terms.tolerant && bytes > 0 && !in_order(options_.recovery);
  const auto counted = tag_sends_.find(tag);
  if (counted == tag_sends_.end() && tag_sends_.size() >= options_.max_tags) return std::nullopt;
  if (messages_.empty()) heard(now);
  chosen_.reset();
  const std::uint32_t id = messages_.end();
  Message& message = messages_.push();
  message.state = SendState::kFree;
  message.open_known = message.probe_due = message.wanted = message.posted = message.tail_again = false;
  message.bytes = bytes;
  message.packets = packets;
  message.sent = message.unscheduled = message.tolerated = 0;
  message.backoff = 0;
  message.touched_at = now;
  message.next_answer = {};
  message.place = {terms.turn, bytes > options_.mouse_bytes, arrival};
  std::fill(message.passed.begin(), message.passed.end(), std::uint16_t{0});
  const bool reset = message.delivered.reset(packets) && message.in_flight.reset(packets) &&
                     message.resend.reset(packets) && message.stop_windows.reset(0) && message.important.reset(0);
  if (!reset) return std::nullopt;
  message.kind = tolerant                        ? terms.bulk
                 : bytes <= options_.mouse_bytes ? PacketKind::kReliable
                                                 : PacketKind::kReliableBulk;
  OpenRecord& open = message.open = OpenRecord{};
  open.tag = tag;
  open.tag_seq = tag_sends_[tag]++;
  open.identity = terms.identity;
  if (tolerant || terms.identity.known) {
    open.communicator = terms.communicator;
    open.collective_bytes = terms.collective_bytes;
  }
  message.first = 0;
  if (tolerant) allow_loss(id, message, terms);
  message.asked = message.first;
  open.level = terms.level;
  agenda_.add(id, message.place.turn, now);
  ranked_ = ranked_ || !message.place.turn.same_place(Turn{});
  const auto early = std::find_if(posted_early_.begin(), posted_early_.end(), [&](const Ready& ready) {
    return ready.tag == tag && ready.tag_seq == open.tag_seq;
  });
  set_state(message.state, early == posted_early_.end() ? SendState::kOffered : SendState::kSending);
  if (early != posted_early_.end()) {
    message.posted = true;
    *early = posted_early_.back();
    posted_early_.pop_back();
  }
  const bool others_ask = message.posted && unsent_packets_ > 0;
  message.posted ? unsent_packets_ += packets : ++unposted_;
  if (is_mouse(message)) ++unsent_mice_;
  // Without credit and without the right to begin, the receiver must learn that somebody waits; it knows when there is
  // more on the way.
  const bool may = is_mouse(message) || may_start(message, packet_bytes(message.first, bytes, options_.segment));
  if (in_flight_ == 0 && !may && !others_ask) make_probe_due(message);
  arm_probe(message);
  return id;
}

void Sender::set_turn(std::uint32_t id, const Turn& turn, TimePoint now) {
  Message& message = messages_[id];
  chosen_.reset();
  message.place.turn = turn;
  ranked_ = ranked_ || !turn.same_place(Turn{});
  if (message.done() || message.sent == message.packets) return;
  agenda_.remove(id);
  agenda_.add(id, turn, now);
}

void Sender::allow_loss(std::uint32_t id, Message& message, const SendTerms& terms) {
  OpenRecord& open = message.open;
  open.tolerant = true;
  open.stage = terms.stage;
  open.collective = terms.collective;
  open.exchange = terms.exchange;
  open.ranks = terms.ranks;
  open.edges = terms.edges;
  open.tolerance_ppm = terms.tolerance_ppm;
  message.first = first_index(secret_, id, message.packets);
  if (terms.important != nullptr) {
    message.important = *terms.important;
    open.important = message.important.count();
  }
  const CollectiveId collective = collective_of(open);
  allowances_.open(collective, {open.collective_bytes, open.ranks, open.edges, open.tolerance_ppm});
}

void Sender::make_probe_due(Message& message) {
  if (message.probe_due) return;
  message.probe_due = true;
  ++probes_due_;
}

bool Sender::may_start(const Message& message, std::uint32_t bytes) const {
  if (message.state != SendState::kOffered)
    return bytes == 0 || distance(credit_units_, sent_units_ + units(bytes)) >= 0;
  return options_.unscheduled_bytes > 0 && uncredited_room(bytes) &&
         (message.unscheduled == 0 || message.unscheduled + bytes <= options_.unscheduled_bytes);
}

bool Sender::lacks_credit(const Message& message) const {
  if (message.sent == message.packets) return false;
  std::uint32_t index = message.first + message.sent;
  if (index >= message.packets) index -= message.packets;
  return !may_start(message, packet_bytes(index, message.bytes, options_.segment));
}

bool Sender::uncredited_room(std::uint32_t bytes) const {
  return uncredited_bytes_ == 0 || uncredited_bytes_ + bytes <= kUncreditedBytes;
}

Duration Sender::probe_wait(const Message& message) const {
  // Who has no receive yet may wait for minutes; when it is posted, the receiver says so, and asks until it is heard.
  const Duration most = options_.probe_cap * (message.posted ? 1 : kRareUnposted);
  return std::min(most, rtt_.probe_timeout() * (1 << message.backoff));
}

void Sender::arm_probe(const Message& message) {
  probe_at_ = std::min(probe_at_, message.touched_at + probe_wait(message));
}

void Sender::touch(Message& message, TimePoint now) {
  message.touched_at = now;
  message.backoff = 0;
  arm_probe(message);
}

TimePoint Sender::next_timeout() const {
  const TimePoint next = std::min({probe_at_, loss_at_, agenda_.next_release()});
  return paced_ ? std::min(next, send_at_) : next;
}

void Sender::on_timeout(TimePoint now) {
  chosen_.reset();
  agenda_.release(now);
  if (send_at_ <= now) paced_ = false;
  if (loss_at_ <= now) {
    loss_at_ = TimePoint::max();
    for (Lane& lane : lanes_) {
      if (lane.lost_at <= now) find_losses(lane, Asked::kByTimer, now);
      loss_at_ = std::min(loss_at_, lane.lost_at);
    }
  }
  if (probe_at_ > now) return;
  probe_at_ = TimePoint::max();
  if (messages_.empty()) return;
  // A step longer than probes are apart was no silence of the peer: nobody asked it.
  silence_ += std::min(now - watched_at_, 2 * kRareUnposted * options_.probe_cap);
  watched_at_ = now;
  if (silence_ >= options_.peer_timeout) {
    peer_lost_ = true;
    return;
  }
  bool credit_asked = false;
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    // Of those that wait for a receive, the oldest holds up the window.
    if (message.state == SendState::kOver || (message.done() && id != messages_.base())) continue;
    // All that wait for credit wait for the same: one asks, or a slow line would carry nothing but questions.
    const bool waits = message.posted && message.sent == 0 && !message.done();
    if (waits && std::exchange(credit_asked, true)) continue;
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

void Sender::heard(TimePoint now) {
  silence_ = Duration::zero();
  watched_at_ = now;
}

void Sender::forget_probe(Message& message) {
  if (std::exchange(message.probe_due, false)) --probes_due_;
}

void Sender::finish(std::uint32_t id, Message& message, SendState state, bool complete, TimePoint now) {
  resends_ -= message.resend.count();
  forget_probe(message);
  if (message.sent == 0 && is_mouse(message)) --unsent_mice_;
  message.posted ? unsent_packets_ -= message.packets - message.sent : --unposted_;
  if (message.sent < message.packets) agenda_.remove(id);
  set_state(message.state, state);
  if (message.in_flight.count() > 0) settle_all_of(id, now);
  const std::uint32_t missing = complete ? 0 : message.delivered.missing();
  know_open(message);
  charge_rest(message, missing);
  if (complete) message.delivered.set_range(0, message.packets);
  done_.push_back({id, missing});
}

// Acknowledgements of these packets may have been lost, or never come; nobody waits for them any more.
void Sender::settle_all_of(std::uint32_t id, TimePoint now) {
  for (Lane& lane : lanes_) {
    for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
      if (!lane.records[seq].settled && lane.records[seq].message == id) settle(lane.records[seq], false, now);
    }
    pop_records(lane);
  }
}

void Sender::pop_records(Lane& lane) {
  if (lane.records.full() && lane.records[lane.records.base()].settled) --full_lanes_;
  while (!lane.records.empty() && lane.records[lane.records.base()].settled) lane.records.pop();
}

void Sender::pop_settled() {
  while (!messages_.empty() && messages_[messages_.base()].state == SendState::kOver && done_.empty()) {
    messages_.pop();
    if (!messages_.empty() && messages_[messages_.base()].done()) arm_probe(messages_[messages_.base()]);
  }
  if (messages_.empty()) probe_at_ = TimePoint::max();
}

std::optional<SendDone> Sender::poll_done() {
  if (done_.empty()) {
    pop_settled();
    return std::nullopt;
  }
  return done_.pop_front();
}

std::optional<DataHeader> Sender::repeat(std::uint32_t id, std::uint32_t index) const {
  if (!messages_.contains(id)) return std::nullopt;
  const Message& message = messages_[id];
  if (message.done() || index >= message.packets || message.delivered.test(index)) return std::nullopt;
  DataHeader header;
  header.secret = secret_;
  header.traffic_class = options_.classes.traffic_class(message.kind);
  header.retransmission = true;
  header.important = message.important.test(index);
  header.message = id;
  header.index = index;
  header.message_bytes = message.bytes;
  header.segment = options_.segment;
  header.sent_units = sent_units_;
  header.open = message.open;
  header.open->settled_below = messages_.base();
  return header;
}

bool Sender::is_consistent() const {
  std::uint32_t resends = 0, probes = 0, mice = 0, unsent = 0, unposted = 0, unfinished = 0;
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    const Message& message = messages_[id];
    if (message.probe_due) ++probes;
    const bool all_sent = message.sent == message.packets;
    const bool offered = message.state == SendState::kOffered || message.state == SendState::kSending;
    if (message.state == SendState::kFree || (message.state == SendState::kSent && !all_sent)) return false;
    if (offered && (all_sent || message.in_flight.count() > message.sent)) return false;
    if (message.done()) continue;
    if (!all_sent) ++unfinished;
    resends += message.resend.count();
    message.posted ? unsent += message.packets - message.sent : ++unposted;
    if (message.sent == 0 && is_mouse(message)) ++mice;
  }
  std::uint64_t in_flight = 0;
  std::uint32_t full = 0, uncredited = 0;
  for (const Lane& lane : lanes_) {
    if (lane.records.full()) ++full;
    if (lane.lost_at < loss_at_) return false;
    for (std::uint32_t seq = lane.records.base(); seq != lane.records.end(); ++seq) {
      const Record& record = lane.records[seq];
      if (record.settled) continue;
      in_flight += record.bytes;
      if (record.uncredited) uncredited += record.bytes;
    }
  }
  return full == full_lanes_ && uncredited == uncredited_bytes_ && resends == resends_ && probes == probes_due_ &&
         mice == unsent_mice_ && unfinished == agenda_.size() && unsent == unsent_packets_ && unposted == unposted_ &&
         in_flight == in_flight_;
}

}  // namespace clustar::mlt
