// When a receiver decides what may stay missing of a message, and when silence makes it ask.
#include <algorithm>

#include "mlt/core/receiver.h"
#include "mlt/core/recovery.h"

namespace clustar::mlt {
namespace {

constexpr double kStateBytes = 160;  // with what carries it
constexpr int kSteady = 4;           // questions before they get rarer
constexpr int kSteadyAtTheEnd = 16;
constexpr std::uint8_t kMostQuestions = 28;

}  // namespace

bool Receiver::ends_by_time(const Message& message) const {
  return options_.recovery != nullptr && options_.recovery->ends_at(message.first_at) != TimePoint::max();
}

void Receiver::arm(Message& message, TimePoint now) {
  if (message.state != ReceiveState::kArriving) return;
  if (ends_by_time(message)) {
    message.decide_at = options_.recovery->ends_at(message.first_at);
  } else if (message.decided && message.packets - message.received <= message.allowed) {
    message.decide_at = now;
  }
  if (options_.recovery == nullptr) {
    arm_proven(message, now);
    message.asked = 0;
    message.ask_at = now + ask_time(message);
  }
  decide_at_ = std::min({decide_at_, message.decide_at, message.ask_at});
}

// The lanes prove that nothing but what is sent again is on its way: no word of the sender is needed. What only a
// packet or two overtook may come yet; it has a quarter of the round trip for that, as in RFC 8985, section 6.2, and
// all of it where packets came late before.
void Receiver::arm_proven(Message& message, TimePoint now) {
  if ((message.passed.total() != message.packets && !message.settled) || message.state != ReceiveState::kArriving)
    return;
  if (message.decided || options_.recovery != nullptr || !may_lose(message)) return;
  const auto most = static_cast<std::uint8_t>(reordering_.packets());
  const bool young = !message.settled && message.passed.hole_within(most);
  const Duration wait = most > options_.reorder_packets ? options_.base_rtt : options_.base_rtt / 4;
  message.decide_at = std::min(message.decide_at, young ? now + wait : now);
  decide_at_ = std::min(decide_at_, message.decide_at);
}

// Long enough for what comes in bursts, for one round trip in which the sender waits for credit, and for the question
// to take a quarter of the line at most: acknowledgements that wait behind questions look like a slow network.
Duration Receiver::ask_time(const Message& message) const {
  const std::uint32_t windows = (message.sent_known + State::kWindow - 1) / State::kWindow;
  const double bytes = std::min(windows, Telling::kPerAnswer) * kStateBytes;
  const auto on_line = Duration(static_cast<Duration::rep>(4e9 * bytes / static_cast<double>(options_.line_rate)));
  const Duration floor = std::max({options_.gap_floor, 2 * options_.base_rtt, on_line});
  return std::clamp(2 * message.pause, floor, std::max(floor, options_.ask_cap));
}

// The sender has credit and does not go on: all that is on its way was lost, or it has no processor. The end of a
// message is worth more questions: in the middle, pauses are the sender's own, and what comes later tells of losses.
void Receiver::ask(std::uint32_t id, Message& message, TimePoint now) {
  const std::int32_t credit = distance(told_units_, sent_units_);
  const std::uint64_t unsent = std::min(std::uint64_t{message.packets - message.sent_known} * message.segment,
                                        std::uint64_t{message.bytes - message.received_bytes});
  const auto packet = static_cast<std::int32_t>(units(std::min<std::uint64_t>(unsent, message.segment)));
  const bool end = credit >= static_cast<std::int32_t>(units(unsent));
  message.asked = std::min<std::uint8_t>(message.asked + 1, kMostQuestions);
  const int doublings = std::max(0, message.asked - (end ? kSteadyAtTheEnd : kSteady));
  message.ask_at = now + std::min(options_.probe_cap, ask_time(message) * (1 << doublings));
  if (credit <= 0 || credit < packet) return;  // it waits for credit, and says so itself
  // What has not begun may have its turn behind what has: the oldest speaks for all.
  if (message.sent_known == 0 && id != first_arriving()) return;
  message.asks = true;
  if (message.telling.some(true, message.got, sent_of(id, message))) states_.push_back(id);
}

std::uint32_t Receiver::first_arriving() const {
  std::uint32_t id = finished_below_;
  while (id != messages_.end() && messages_[id].state != ReceiveState::kArriving) ++id;
  return id;
}

// A message is over: the one whose turn it is now is asked about soon, however long it has waited.
void Receiver::ask_about_next(TimePoint now) {
  if (options_.recovery != nullptr) return;
  const std::uint32_t id = first_arriving();
  if (id == messages_.end() || messages_[id].sent_known > 0) return;  // what is under way has its own pace
  Message& message = messages_[id];
  message.asked = 0;
  message.ask_at = std::min(message.ask_at, now + ask_time(message));
  decide_at_ = std::min(decide_at_, message.ask_at);
}

TimePoint Receiver::next_timeout() const { return std::min(ack_at_, decide_at_); }

void Receiver::on_timeout(LedgerBook& ledgers, TimePoint now) {
  if (ack_at_ <= now) {
    ack_due_ = true;
    ack_at_ = TimePoint::max();
  }
  if (decide_at_ > now) return;
  decide_at_ = TimePoint::max();
  for (std::uint32_t id = messages_.base(); id != messages_.end(); ++id) {
    Message& message = messages_[id];
    if (message.state != ReceiveState::kArriving) continue;
    if (message.decide_at <= now) decide(id, message, ledgers);
    if (message.over()) ask_about_next(now);
    if (message.ask_at <= now) ask(id, message, now);
    decide_at_ = std::min({decide_at_, message.decide_at, message.ask_at});
  }
}

// How many of the packets that are not important may be missing for good.
std::uint32_t Receiver::tolerable(const Message& message, const LedgerBook& ledgers, std::uint32_t missing) const {
  if (!may_lose(message) || message.refused) return 0;
  const std::uint32_t most = std::min(missing, message_cap_packets(message.packets));
  const std::uint64_t headroom = ledgers.headroom(collective_of(message.open), message.open.stage);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, headroom / message.segment));
}

// Only after the lanes proved, or the sender said, that all was sent and nothing is on its way: silence is no proof,
// for packets may wait in a path or a class that others pass. Silence makes the receiver ask.
void Receiver::decide(std::uint32_t id, Message& message, LedgerBook& ledgers) {
  message.decide_at = TimePoint::max();
  if (ends_by_time(message)) {
    finish(id, message, ReceiveState::kPartial);
    return;
  }
  const std::uint32_t missing = message.packets - message.received;
  const std::uint32_t important = message.open.important - std::min(message.important, message.open.important);
  const std::uint32_t others = missing - std::min(missing, important);
  const std::uint32_t allowed = tolerable(message, ledgers, others);
  const bool enough = important == 0 && others <= allowed;
  if (enough &&
      ledgers.charge(collective_of(message.open), message.open.stage, message.bytes - message.received_bytes)) {
    finish(id, message, ReceiveState::kPartial);
    return;
  }
  message.decided = true;
  message.allowed = allowed;
  // The wish of an earlier moment is still being told: who began anew with each probe would never come to its end.
  if (message.telling.tells_all()) return;
  message.want = others - allowed;
  if (message.want > 0) ack_due_ = true;  // before the wish: see poll_control()
  tell_all(id, message);
}

}  // namespace clustar::mlt
