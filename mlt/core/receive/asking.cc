#include "mlt/core/receive/asking.h"

#include <algorithm>

#include "mlt/core/trip_times.h"

namespace clustar::mlt {
namespace {

constexpr int kSteady = 4;  // questions before they get rarer
constexpr int kSteadyAtTheEnd = 16;
constexpr std::uint8_t kMostQuestions = 28;
constexpr double kStateBytes = 160;  // with what carries it

}  // namespace

Asking::Asking(const Options& options)
    : options_(options),
      state_time_(static_cast<Duration::rep>(4e9 * kStateBytes / static_cast<double>(options.line_rate))) {}

// Long enough for what comes in bursts, for one round trip in which the sender waits for credit, and for the question
// to take a quarter of the line at most: acknowledgements that wait behind questions look like a slow network.
Duration Asking::patience(const ReceiveMessage& message, Duration trip) const {
  const std::uint32_t windows = (message.sent_known + State::kWindow - 1) / State::kWindow;
  const Duration on_line = std::min(windows, Telling::kPerAnswer) * state_time_;
  const Duration floor = std::max({options_.gap_floor, 2 * trip, on_line});
  return std::clamp(2 * message.silence.pause, floor, std::max(floor, options_.ask_cap));
}

void Asking::on_packet(ReceiveMessage& message, bool goes_on, Duration trip, TimePoint now) {
  auto& silence = message.silence;
  // A pause for want of credit or of the sender's processor says nothing about the sender's pace.
  const Duration gap = std::min(now - silence.last_at, mlt::silence(options_, trip));
  silence.pause -= silence.pause / 32;
  // When it was asked for and only what is sent again comes, losses made the pause and not the sender.
  if (message.received > 1 && (silence.asked == 0 || goes_on)) silence.pause = std::max(gap, silence.pause);
  pause_ = silence.pause;
  silence.last_at = now;
}

void Asking::watch(ReceiveMessage& message, Duration trip, TimePoint now) const {
  message.silence.asked = 0;
  message.silence.ask_at = now + patience(message, trip);
}

// The end of a message is worth more questions: in the middle, pauses are the sender's own, and what comes later tells
// of losses.
void Asking::on_asked(ReceiveMessage& message, bool end, Duration trip, TimePoint now) const {
  auto& silence = message.silence;
  silence.asked = std::min<std::uint8_t>(silence.asked + 1, kMostQuestions);
  const int doublings = std::max(0, silence.asked - (end ? kSteadyAtTheEnd : kSteady));
  const Duration wait = patience(message, trip);
  silence.ask_at = now + std::max(wait, std::min(options_.probe_cap, wait * (1 << doublings)));
}

void Asking::hurry(ReceiveMessage& message, Duration trip, TimePoint now) const {
  message.silence.asked = 0;
  message.silence.ask_at = std::min(message.silence.ask_at, now + patience(message, trip));
}

}  // namespace clustar::mlt
