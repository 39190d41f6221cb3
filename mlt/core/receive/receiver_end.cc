// What a receiver does when time passes, and when a message ends.
#include <algorithm>

#include "mlt/core/receive/receiver.h"

namespace clustar::mlt {

void Receiver::arm(Message& message, TimePoint now) {
  if (message.state != ReceiveState::kArriving) return;
  decision_.arm(message, acks_.tolerance(), now);
  if (options_.recovery == nullptr) asking_.watch(message, trip_, now);
  note_due(message);
}

void Receiver::note_due(const Message& message) {
  due_at_ = std::min({due_at_, message.loss.decide_at, message.silence.ask_at});
}

// The sender has credit and does not go on: all that is on its way was lost, or it has no processor.
void Receiver::ask(std::uint32_t id, Message& message, QuestionBudget& questions, TimePoint now) {
  const std::int32_t credit = credit_.unused();
  const std::uint64_t unsent = std::min(std::uint64_t{message.packets - message.sent_known} * message.segment,
                                        std::uint64_t{message.missing_bytes()});
  const auto packet = static_cast<std::int32_t>(units(std::min<std::uint64_t>(unsent, message.segment)));
  const bool waits_for_credit = credit <= 0 || credit < packet;  // and says so itself
  // What has not begun may have its turn behind what has: the oldest speaks for all.
  const bool asks = !waits_for_credit && (message.sent_known > 0 || id == first_arriving());
  if (asks) {
    if (const auto later = questions.take(now)) {
      message.silence.ask_at = *later;
      return;
    }
  }
  asking_.on_asked(message, credit >= static_cast<std::int32_t>(units(unsent)), trip_, now);
  if (!asks) return;
  message.asks = true;
  if (message.telling.some(true, message.got, sent_of(id, message))) states_.push_back(id);
}

std::uint32_t Receiver::first_arriving() const {
  std::uint32_t id = finished_below_;
  while (id != messages_.end() && messages_[id].state != ReceiveState::kArriving) ++id;
  return id;
}

// A message is over: the one whose turn it is now is asked about soon.
void Receiver::ask_about_next(TimePoint now) {
  if (options_.recovery != nullptr) return;
  const std::uint32_t id = first_arriving();
  if (id == messages_.end() || messages_[id].sent_known > 0) return;  // what is under way has its own pace
  asking_.hurry(messages_[id], trip_, now);
  due_at_ = std::min(due_at_, messages_[id].silence.ask_at);
}

TimePoint Receiver::next_timeout() const { return std::min(acks_.next_timeout(), due_at_); }

void Receiver::on_timeout(LedgerBook& ledgers, QuestionBudget& questions, TimePoint now) {
  acks_.on_timeout(now);
  if (due_at_ > now) return;
  due_at_ = TimePoint::max();
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (message.state != ReceiveState::kArriving) continue;
    if (message.loss.decide_at <= now) decide(id, message, ledgers);
    if (message.over()) ask_about_next(now);
    if (message.silence.ask_at <= now) ask(id, message, questions, now);
    note_due(message);
  }
}

void Receiver::decide(std::uint32_t id, Message& message, LedgerBook& ledgers) {
  if (decision_.decide(message, ledgers)) {
    finish(id, message, ReceiveState::kPartial);
    return;
  }
  // The wish of an earlier moment is still being told: a receiver that started over with each probe would never come to
  // its end.
  if (message.telling.tells_all()) return;
  message.want = LossDecision::lacks(message);
  if (message.want > 0) acks_.make_due();  // before the wish: see poll_control()
  tell_all(id, message);
}

void Receiver::finish(std::uint32_t id, Message& message, ReceiveState state) {
  set_state(message.state, state);
  if (levels_differ_) find_level();
  parity_.drop(id);
  message.loss.decide_at = message.silence.ask_at = TimePoint::max();
  const std::uint32_t missing = message.missing_bytes();
  if (message.receive != kNone) {
    credit_.came(missing);
    receive_over(message, missing, false);
  }
  if (state == ReceiveState::kPartial) {
    counters_.missing_bytes += missing;
    acks_.on_lost(message.missing());
  }
  tell_over(id, message);
}

void Receiver::receive_over(const Message& message, std::uint32_t missing, bool truncated) {
  credit_.over();
  if (credit_.receives() == 0) active_ = false;
  done_.push_back({message.receive, message.bytes, missing, truncated});
}

void Receiver::repeat_ends() {
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    if (messages_[id].over()) tell_all(id, messages_[id]);
  }
  acks_.make_due();
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
    acks_.make_due();  // it says so
  } else {
    tell_all(id, message);
  }
}

}  // namespace clustar::mlt
