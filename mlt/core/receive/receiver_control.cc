// What a receiver tells its sender.
#include <algorithm>
#include <utility>

#include "mlt/core/receive/receiver.h"

namespace clustar::mlt {

bool Receiver::has_control() const {
  return acks_.due() || receives_.may_tell() || !states_.empty() || forgotten_probe_.has_value();
}

std::optional<Packet> Receiver::poll_control(TimePoint now) {
  const std::uint32_t credit = credit_.tell();
  if (const PostedReceive* receive = receives_.tell()) {
    return Posted{secret_, receive->tag, receive->tag_seq, receive->length, credit};
  }
  if (forgotten_probe_) {
    State state;
    state.secret = secret_;
    state.stop = state.complete = state.matched = true;
    state.message = *std::exchange(forgotten_probe_, std::nullopt);
    state.credit_units = credit;
    state.finished_below = finished_below_;
    return state;
  }
  while (!states_.empty()) {
    const std::uint32_t id = states_.front();
    if (!messages_.contains(id)) {
      states_.pop_front();
      continue;
    }
    // First what came: by that alone the sender sees most of the losses, and what of them it sends again is not wanted
    // twice.
    if (messages_[id].want > 0 && acks_.due()) break;
    return next_state(id, messages_[id]);
  }
  if (!acks_.due()) return std::nullopt;
  Ack ack;
  ack.secret = secret_;
  ack.credit_units = credit;
  ack.finished_below = finished_below_;
  acks_.fill(ack, now);
  return ack;
}

SentRange Receiver::sent_of(std::uint32_t id, const Message& message) const {
  return {message.packets, first_of(id, message), message.sent_known};
}

void Receiver::tell_all(std::uint32_t id, Message& message) {
  if (message.telling.all(message.packets)) states_.push_back(id);
}

// One window of the message's state; the message stays at the front until those that are due are told.
State Receiver::next_state(std::uint32_t id, Message& message) {
  State state;
  state.secret = secret_;
  state.message = id;
  state.credit_units = credit_.tell();
  state.finished_below = finished_below_;
  state.stop = !message.growing();
  state.complete = state.stop && message.state != ReceiveState::kPartial;
  state.matched = message.receive != kNone;
  state.asks = message.asks && !state.stop;
  bool more = false;
  if (state.complete) {
    message.telling.stop();
  } else {
    tell_window(message, state);
    more = message.telling.told(message.growing(), message.got, sent_of(id, message));
  }
  if (more) return state;
  message.asks = false;
  states_.pop_front();
  return state;
}

void Receiver::tell_window(Message& message, State& state) {
  state.base = message.telling.base();
  state.count = static_cast<std::uint16_t>(std::min<std::uint32_t>(State::kWindow, message.packets - state.base));
  message.got.extract(state.base, state.missing);
  for (std::byte& byte : state.missing) byte = ~byte;
  for (std::uint32_t i = state.count; i < State::kWindow; ++i) state.missing[i / 8] &= ~(std::byte{0x80} >> (i % 8));
  const std::uint32_t missing = state.count - message.got.count(state.base, state.base + state.count);
  state.want = static_cast<std::uint16_t>(std::min(message.want, missing));
  message.want -= state.want;
}

}  // namespace clustar::mlt
