// When a sender asks about its messages, and how long it takes to believe that nobody answers.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/options.h"
#include "mlt/core/question_budget.h"
#include "mlt/core/send/rtt.h"
#include "mlt/core/send/send_message.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class Probing {
 public:
  explicit Probing(const Options& options) : options_(options) {}

  // Of a message that has just been sent, or of which something was sent or came: questions about it start over.
  void touch(SendMessage& message, const RttEstimator& rtt, TimePoint now);
  // It was sent again: questions about it stay as rare as they are.
  static void sent_again(SendMessage& message, TimePoint now) { message.probe.touched_at = now; }
  void watch(const SendMessage& message, const RttEstimator& rtt);

  void ask(SendMessage& message);
  void forget(SendMessage& message);
  bool due() const { return due_ > 0; }
  // The oldest message whose probe is due, which it is no more. Only when due().
  std::uint32_t take(SendMessages& messages);
  // The window that the next answer has to begin with. An answer tells a few: so each probe begins where the one before
  // ended, at a packet whose fate is not known: of those of a STOP that have not come, on their way, or at least not
  // delivered.
  static std::uint16_t window_in_doubt(SendMessage& message);

  // The peer said something, or there was nothing to hear.
  void heard(TimePoint now);
  bool peer_lost() const { return peer_lost_; }  // it has not answered for options.peer_timeout

  TimePoint next_timeout() const { return at_; }
  void on_timeout(SendMessages& messages, const RttEstimator& rtt, QuestionBudget& questions, Rng& rng, TimePoint now);
  // No message is left to ask about.
  void rest() { at_ = TimePoint::max(); }

  bool is_consistent(const SendMessages& messages) const;

 private:
  Duration wait(const SendMessage& message, const RttEstimator& rtt) const;
  TimePoint next(const SendMessage& message, const RttEstimator& rtt) const;  // question about it

  const Options& options_;
  std::uint32_t due_ = 0;            // messages
  TimePoint at_ = TimePoint::max();  // not after any message's next probe
  TimePoint watched_at_{};           // until then `silence_` counts
  Duration silence_{};               // since the peer's latest packet, or the first message after idling
  bool peer_lost_ = false;
};

}  // namespace clustar::mlt
