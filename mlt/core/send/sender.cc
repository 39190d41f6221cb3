#include "mlt/core/send/sender.h"

#include <algorithm>

#include "mlt/core/recovery.h"

namespace clustar::mlt {
namespace {

std::uint8_t paths_of(const Options& options) { return in_order(options.recovery) ? 1 : options.paths; }

}  // namespace

Sender::Sender(const Options& options, LedgerBook& budget, std::uint64_t secret, std::uint64_t seed)
    : options_(options),
      secret_(secret),
      rng_(seed),
      messages_(options.max_messages),
      tags_(options.max_tags),
      paths_(options, paths_of(options)),
      flight_(options, paths_of(options)),
      congestion_(options.congestion),
      plan_(options),
      allowance_(options, budget),
      parity_(options),
      probing_(options) {
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
  if (!tags_.has_room(tag)) return std::nullopt;
  if (messages_.empty()) probing_.heard(now);
  next_ = Next::kUnknown;
  const std::uint32_t id = messages_.end();
  Message& message = messages_.push();
  if (!message.reset(bytes, packets)) return std::nullopt;
  message.place = {terms.turn, bytes > options_.mouse_bytes, arrival};
  push(terms.turn);
  message.kind = tolerant                        ? terms.bulk
                 : bytes <= options_.mouse_bytes ? PacketKind::kReliable
                                                 : PacketKind::kReliableBulk;
  message.protect = terms.parity && packets > 1 && options_.recovery == nullptr;
  OpenRecord& open = message.open;
  open.tag = tag;
  open.tag_seq = tags_.take(tag);
  open.identity = terms.identity;
  open.level = terms.level;
  if (tolerant || terms.identity.known) {
    open.communicator = terms.communicator;
    open.collective_bytes = terms.collective_bytes;
  }
  if (tolerant) allow_loss(id, message, terms);
  message.probe.asked = message.first;
  message.posted = tags_.take_early(tag, open.tag_seq);
  set_state(message.state, message.posted ? SendState::kSending : SendState::kOffered);
  plan_.add(id, message, now);
  const bool others_ask = message.posted && unsent_packets_ > 0;
  message.posted ? unsent_packets_ += packets : ++unposted_;
  // Without credit and without the right to begin, the receiver must learn that somebody waits; it knows when there is
  // more on the way.
  const bool may = plan_.is_mouse(message) || !plan_.lacks_credit(message, view());
  if (flight_.bytes() == 0 && !may && !others_ask) probing_.ask(message);
  probing_.touch(message, flight_.rtt(), now);
  return id;
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
  allowance_.open(message);
}

void Sender::set_turn(std::uint32_t id, const Turn& turn, TimePoint now) {
  next_ = Next::kUnknown;
  messages_[id].place.turn = turn;
  push(turn);
  plan_.move(id, messages_[id], now);
}

TimePoint Sender::next_timeout() const {
  return std::min({probing_.next_timeout(), flight_.next_timeout(), plan_.next_timeout()});
}

void Sender::on_timeout(QuestionBudget& questions, TimePoint now) {
  next_ = Next::kUnknown;
  plan_.on_timeout(now);
  flight_.on_timeout(*this, now);
  probing_.on_timeout(messages_, flight_.rtt(), questions, rng_, now);
}

void Sender::finish(std::uint32_t id, Message& message, SendState state, bool complete) {
  probing_.forget(message);
  message.posted ? unsent_packets_ -= message.packets - message.sent : --unposted_;
  plan_.remove(id, message);
  set_state(message.state, state);
  // Acknowledgements of what is on its way may have been lost, or never come.
  if (message.in_flight.count() > 0 || message.parity > 0) flight_.forget(id);
  const std::uint32_t missing = complete ? 0 : message.delivered.missing();
  allowance_.know_open(message);
  allowance_.charge_rest(message, missing);
  if (complete) message.delivered.set_range(0, message.packets);
  done_.push_back({id, missing});
}

void Sender::forget_over() {
  while (!messages_.empty() && messages_[messages_.base()].state == SendState::kOver && done_.empty()) {
    messages_.pop();
    if (messages_.empty()) break;
    const Message& oldest = messages_[messages_.base()];
    if (oldest.done()) probing_.watch(oldest, flight_.rtt());
  }
  if (messages_.empty()) probing_.rest();
}

std::optional<SendDone> Sender::poll_done() {
  if (done_.empty()) {
    forget_over();
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
  header.sent_units = credit_.sent_units();
  header.open = message.open;
  header.open->forgotten_below = messages_.base();
  return header;
}

Sender::Counters Sender::counters() const {
  Counters counters = counters_;
  counters.lost = flight_.lost();
  return counters;
}

bool Sender::is_consistent() const {
  std::uint32_t unsent = 0, unposted = 0;
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    const Message& message = messages_[id];
    const bool all_sent = message.sent == message.packets;
    const bool offered = message.state == SendState::kOffered || message.state == SendState::kSending;
    if (message.state == SendState::kFree || (message.state == SendState::kSent && !all_sent)) return false;
    if (offered && (all_sent || message.in_flight.count() > message.sent)) return false;
    if (message.done()) continue;
    message.posted ? unsent += message.packets - message.sent : ++unposted;
  }
  return unsent == unsent_packets_ && unposted == unposted_ && plan_.is_consistent(messages_) &&
         flight_.is_consistent() && probing_.is_consistent(messages_);
}

}  // namespace clustar::mlt
