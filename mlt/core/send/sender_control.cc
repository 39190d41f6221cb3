// What a sender learns from its receiver.
#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"
#include "mlt/core/send/sender.h"

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kTailPackets = 2;

}  // namespace

bool Sender::is_possible(std::uint32_t credit, std::uint32_t finished_below) {
  if (credit_.is_possible(credit) &&
      distance(finished_below, messages_.base()) <= static_cast<std::int32_t>(messages_.size())) {
    return true;
  }
  ++counters_.ignored;
  return false;
}

void Sender::take_credit(std::uint32_t credit, std::uint32_t finished_below, TimePoint now) {
  credit_.take(credit);
  const std::int32_t finished = distance(finished_below, messages_.base());
  for (std::int32_t i = 0; i < finished; ++i) {
    const std::uint32_t id = messages_.base() + static_cast<std::uint32_t>(i);
    Message& message = messages_[id];
    if (message.state == SendState::kSent) finish(id, message, SendState::kOver, true);
    receive_posted(message, now);
  }
  probing_.heard(now);
}

void Sender::on_posted(const Posted& posted, TimePoint now) {
  next_ = Next::kUnknown;
  if (!is_possible(posted.credit_units, messages_.base())) return;
  take_credit(posted.credit_units, messages_.base(), now);
  // At least so many messages are not before it: with one tag it is the first that is looked at.
  const std::int32_t since = tags_.since(posted.tag, posted.tag_seq);
  const auto window = static_cast<std::int32_t>(messages_.end() - messages_.base());
  for (std::int32_t back = since; back > 0 && back <= window; ++back) {
    Message& message = messages_[messages_.end() - static_cast<std::uint32_t>(back)];
    if (message.open.tag != posted.tag || message.open.tag_seq != posted.tag_seq) continue;
    receive_posted(message, now);
    return;
  }
  if (since > 0) return;  // it is over
  if (!tags_.post_early(posted.tag, posted.tag_seq, options_.max_messages)) ++counters_.ignored;
}

void Sender::on_ack(const Ack& ack, TimePoint now, Duration waited) {
  next_ = Next::kUnknown;
  if (!is_possible(ack.credit_units, ack.finished_below)) return;
  const TimePoint newest = flight_.newest_delivered();
  for (std::size_t i = 0; i < ack.count; ++i) {
    const auto told = flight_.on_block(ack.blocks[i], waited, *this, now);
    if (!told) {
      ++counters_.ignored;
      continue;
    }
    if (told->news) paths_.on_news(told->path);
    credit_delivery(*told, now);
  }
  flight_.wake_tails(newest, now);
  take_credit(ack.credit_units, ack.finished_below, now);
  forget_over();
}

// After the losses that the same packet showed, as PathSelector wants it.
void Sender::credit_delivery(const Flight::Delivery& told, TimePoint now) {
  if (told.packets == 0) return;
  const RttEstimator& known = flight_.rtt();
  const Duration rtt = told.rtt > Duration::zero() ? told.rtt : known.srtt();
  paths_.on_delivered(told.path, told.packets, told.marks, rtt, now);
  const std::uint64_t marked = told.bytes * std::min(told.marks, told.packets) / told.packets;
  congestion_.on_ack(told.bytes, marked, rtt, known.min_rtt(), now);
  plan_.set_rate(std::min(options_.line_rate, congestion_.rate_bytes_per_s(known.srtt())), now);
}

Sender::Message* Sender::unfinished(std::uint32_t id) {
  if (!messages_.contains(id)) return nullptr;
  Message& message = messages_[id];
  return message.done() ? nullptr : &message;
}

void Sender::on_delivered(const SentPacket& packet, TimePoint now) {
  parity_.settled(false);
  Message* message = unfinished(packet.message);
  if (message == nullptr) return;
  packet.parity ? void(--message->parity) : void(message->in_flight.clear(packet.index));
  probing_.touch(*message, flight_.rtt(), now);
  message->tail_again = false;
  if (packet.with_open) allowance_.know_open(*message);
  if (packet.parity) return;
  if (message->stop_windows.size() > 0) return;  // it came after the end, and counts as missing
  if (message->delivered.set(packet.index)) plan_.clear_resend(*message, packet.index);
  if (message->open.tolerant && message->is_quiet()) probing_.ask(*message);
}

void Sender::on_lost(const SentPacket& packet, std::uint8_t path, Evidence evidence, TimePoint now) {
  lost_at_ = now;
  if (evidence != Evidence::kDiscarded) {
    congestion_.on_loss(packet.bytes, now);
    paths_.on_loss(path, now);
  }
  parity_.settled(evidence == Evidence::kOrder);
  Message* message = unfinished(packet.message);
  if (message == nullptr) return;
  if (packet.parity) {
    --message->parity;
    return;
  }
  message->in_flight.clear(packet.index);
  if (message->delivered.test(packet.index)) return;
  if (!allowance_.may_miss(*message, packet, evidence, flight_.bytes())) {
    plan_.mark_resend(*message, packet.index);
  } else if (message->open.tolerant && message->is_quiet()) {
    probing_.ask(*message);
  }
}

void Sender::on_doubted(const SentPacket& packet) {
  if (Message* message = unfinished(packet.message)) probing_.ask(*message);
}

void Sender::receive_posted(Message& message, TimePoint now) {
  if (!message.posted && !message.done()) {
    unsent_packets_ += message.packets - message.sent;
    --unposted_;
  }
  message.posted = true;
  if (message.state == SendState::kOffered) {
    set_state(message.state, SendState::kSending);
    probing_.touch(message, flight_.rtt(), now);
  } else if (message.state == SendState::kStored) {
    set_state(message.state, SendState::kOver);
    probing_.forget(message);
  }
}

void Sender::on_state(const State& state, TimePoint now) {
  next_ = Next::kUnknown;
  if (!is_possible(state.credit_units, state.finished_below)) return;
  const TimePoint newest = flight_.newest_delivered();
  take_state(state, now);
  flight_.wake_tails(newest, now);
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
    finish(state.message, message, state.matched ? SendState::kOver : SendState::kStored, true);
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
  if (state.asks && now >= message.probe.answered_until &&
      ((message.open.tolerant && message.nothing_flies()) || plan_.lacks_credit(message, view()))) {
    probing_.ask(message);
    message.probe.answered_until = now + flight_.rtt().min_rtt() / 2;
  }
  if (!state.stop) return;
  message.stop_windows.set(state.base / State::kWindow);
  if (message.stop_windows.all()) finish(state.message, message, SendState::kOver, false);
}

// What the receiver has and has not, against what is on its way. The last packets alone may go again sooner, once, as
// the tail probe of RFC 8985, section 7.2, does.
void Sender::reconcile(std::uint32_t id, const State& state, TimePoint now) {
  Message& message = messages_[id];
  const bool tail =
      state.asks && !message.tail_again && flight_.bytes() <= std::uint64_t{kTailPackets} * options_.segment;
  const auto flies = [&] { return message.in_flight.count() > 0 || message.parity > 0; };
  for (std::uint32_t lane = 0; flies() && lane < flight_.lanes(); ++lane) {
    const Flight::Delivery told = flight_.on_state(lane, state, tail, *this, now);
    message.tail_again = message.tail_again || (tail && told.lost);
    credit_delivery(told, now);
  }
  if (state.want > 0) message.loss.wanted = true;
  resend_missing(message, state);
}

void Sender::resend_missing(Message& message, const State& state) {
  const auto missing = [&](std::uint32_t index) { return state.is_missing(index - state.base); };
  const auto comes = [&](std::uint32_t index) { return message.in_flight.test(index) || message.resend.test(index); };
  std::uint32_t want = state.want;
  // Of what it wants, some may be on its way again, or due; if that is lost, it goes again.
  for (std::uint32_t index = state.base; want > 0 && index < state.base + state.count; ++index) {
    if (missing(index) && comes(index) && !message.important.test(index)) --want;
  }
  for (std::uint32_t index = state.base; index < state.base + state.count; ++index) {
    const std::uint32_t order =
        index >= message.first ? index - message.first : index + message.packets - message.first;
    if (order >= message.sent) continue;  // nobody can have it
    if (!missing(index)) {
      if (message.delivered.set(index)) plan_.clear_resend(message, index);
      continue;
    }
    if (state.stop) message.delivered.clear(index);  // acknowledged when it came too late
    if (state.stop || comes(index)) continue;
    if (!message.open.tolerant || message.important.test(index)) {
      plan_.mark_resend(message, index);
    } else if (want > 0) {
      --want;
      plan_.mark_resend(message, index);
    }
  }
}

}  // namespace clustar::mlt
