// What a receiver tells its sender.
#include <algorithm>
#include <utility>

#include "mlt/core/receiver.h"

namespace clustar::mlt {

bool Receiver::has_control() const {
  return ack_due_ || !posts_.empty() || !states_.empty() || settled_probe_.has_value();
}

std::optional<Packet> Receiver::poll_control(TimePoint now) {
  told_units_ = credit_units_;
  while (!posts_.empty()) {
    Receive& receive = receives_[posts_.pop_front()];
    if (!receive.used || !std::exchange(receive.posted_due, false)) continue;
    return Posted{secret_, receive.tag, receive.tag_seq, receive.length, credit_units_};
  }
  if (settled_probe_) {
    State state;
    state.secret = secret_;
    state.stop = state.complete = state.matched = true;
    state.message = *std::exchange(settled_probe_, std::nullopt);
    state.credit_units = credit_units_;
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
    if (messages_[id].want > 0 && ack_due_) break;
    return state_of(id, messages_[id]);
  }
  if (!ack_due_) return std::nullopt;
  return next_ack(now);
}

// One window of the message's state; the message stays at the front until those that are due are told.
State Receiver::state_of(std::uint32_t id, Message& message) {
  State state;
  state.secret = secret_;
  state.message = id;
  state.credit_units = credit_units_;
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

AckBlock Receiver::block_of(Lane& lane, TimePoint now) const {
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - lane.largest_at).count();
  lane.due = false;
  lane.unacked = 0;
  return {lane.path,    lane.traffic_class, lane.marked,
          lane.largest, lane.before,        static_cast<std::uint16_t>(std::min<std::int64_t>(waited, 0xffff))};
}

// Oldest first, so that a sender never takes for lost what a later block no longer tells.
Ack Receiver::next_ack(TimePoint now) {
  Ack ack;
  ack.secret = secret_;
  ack.credit_units = credit_units_;
  ack.finished_below = finished_below_;
  while (!full_blocks_.empty() && ack.count < Ack::kMaxBlocks) ack.blocks[ack.count++] = full_blocks_.pop_front();
  bool more = !full_blocks_.empty();
  for (std::uint32_t looked = 0; looked < lanes_.size(); ++looked) {
    Lane& lane = lanes_[next_lane_];
    if (lane.due && ack.count == Ack::kMaxBlocks) {
      more = true;
      break;
    }
    if (lane.due && lane.seen) {
      ack.blocks[ack.count++] = block_of(lane, now);
    }
    next_lane_ = (next_lane_ + 1) % lanes_.size();
  }
  ack_due_ = more;
  if (!more) ack_at_ = TimePoint::max();
  return ack;
}

}  // namespace clustar::mlt
