#include "mlt/core/send/probing.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "mlt/core/receive/telling.h"

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kMaxBackoff = 12;
constexpr int kRareUnposted = 8;

}  // namespace

Duration Probing::wait(const SendMessage& message, const RttEstimator& rtt) const {
  // A message without a receive may wait for minutes; when it is posted, the receiver says so, and asks until it is
  // heard.
  const Duration most = rtt.cap() * (message.posted ? 1 : kRareUnposted);
  return std::min(most, rtt.probe_timeout() * (1 << message.probe.backoff));
}

TimePoint Probing::next(const SendMessage& message, const RttEstimator& rtt) const {
  return std::max(message.probe.not_before, message.probe.touched_at + wait(message, rtt));
}

void Probing::watch(const SendMessage& message, const RttEstimator& rtt) { at_ = std::min(at_, next(message, rtt)); }

void Probing::touch(SendMessage& message, const RttEstimator& rtt, TimePoint now) {
  message.probe.touched_at = now;
  message.probe.backoff = 0;
  message.probe.not_before = {};
  watch(message, rtt);
}

void Probing::ask(SendMessage& message) {
  if (!std::exchange(message.probe.due, true)) ++due_;
}

void Probing::forget(SendMessage& message) {
  if (std::exchange(message.probe.due, false)) --due_;
}

std::uint32_t Probing::take(SendMessages& messages) {
  std::uint32_t id = messages.base();
  while (!messages[id].probe.due) ++id;
  forget(messages[id]);
  return id;
}

std::uint16_t Probing::window_in_doubt(SendMessage& message) {
  if (message.stop_windows.size() > 0) return static_cast<std::uint16_t>(message.stop_windows.first_clear(0));
  const auto from = [&](const auto& first) {
    const std::uint32_t behind = first(message.probe.asked);
    return behind < message.packets ? behind : first(0);
  };
  std::uint32_t packet = from([&](std::uint32_t at) { return message.in_flight.first_set(at); });
  if (packet >= message.packets) packet = from([&](std::uint32_t at) { return message.delivered.first_clear(at); });
  if (packet >= message.packets) return 0;
  const std::uint32_t window = packet / State::kWindow;
  message.probe.asked = (window + Telling::kPerAnswer) * State::kWindow;
  return static_cast<std::uint16_t>(window);
}

void Probing::heard(TimePoint now) {
  silence_ = Duration::zero();
  watched_at_ = now;
}

void Probing::on_timeout(SendMessages& messages, const RttEstimator& rtt, QuestionBudget& questions, Rng& rng,
                         TimePoint now) {
  if (at_ > now) return;
  at_ = TimePoint::max();
  if (messages.empty()) return;
  // A step longer than probes are apart was no silence of the peer: nobody asked it.
  silence_ += std::min(now - watched_at_, 2 * kRareUnposted * options_.probe_cap);
  watched_at_ = now;
  if (silence_ >= options_.peer_timeout) {
    peer_lost_ = true;
    return;
  }
  bool credit_asked = false;
  for (std::uint32_t id = messages.base(); id != messages.end(); ++id) {
    SendMessage& message = messages[id];
    // Of those that wait for a receive, the oldest holds up the window.
    if (message.state == SendState::kOver || (message.done() && id != messages.base())) continue;
    // All that wait for credit wait for the same: one asks, or a slow line would carry nothing but questions.
    const bool waits = message.posted && message.sent == 0 && !message.done();
    if (waits && std::exchange(credit_asked, true)) continue;
    if (next(message, rtt) <= now) {
      if (const auto later = questions.take(now)) {
        message.probe.not_before = *later;
        watch(message, rtt);
        continue;
      }
      ask(message);
      message.probe.backoff = std::min<std::uint8_t>(message.probe.backoff + 1, kMaxBackoff);
      // Up to a quarter early, at random: no rhythm, or what is lost in a rhythm may take every probe.
      const auto quarter = static_cast<std::uint64_t>(wait(message, rtt).count() / 4);
      message.probe.touched_at = now - Duration(static_cast<Duration::rep>(rng.below(quarter + 1)));
    }
    watch(message, rtt);
  }
}

bool Probing::is_consistent(const SendMessages& messages) const {
  std::uint32_t due = 0;
  for (std::uint32_t id = messages.base(); id != messages.end(); ++id) due += messages[id].probe.due ? 1 : 0;
  return due == due_;
}

}  // namespace clustar::mlt
