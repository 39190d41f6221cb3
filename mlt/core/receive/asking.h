// When silence makes a receiver ask its sender for an answer.
#pragma once

#include <cstdint>

#include "mlt/core/options.h"
#include "mlt/core/receive/receive_message.h"
#include "transport/base/time.h"

namespace clustar::mlt {

// `trip`: Receiver::round_trip().
class Asking {
 public:
  explicit Asking(const Options& options);

  // The first word of the message came.
  void begin(ReceiveMessage& message, TimePoint now) const {
    message.silence.last_at = now;
    message.silence.pause = pause_;
  }
  // One of its packets came. `goes_on`: a first transmission later than all before.
  void on_packet(ReceiveMessage& message, bool goes_on, Duration trip, TimePoint now);
  // From now on it waits for the next one.
  void watch(ReceiveMessage& message, Duration trip, TimePoint now) const;
  // It is asked about. `end`: the sender has credit for all that is left.
  void on_asked(ReceiveMessage& message, bool end, Duration trip, TimePoint now) const;
  // Those before it are over: it is its turn, however long it has waited.
  void hurry(ReceiveMessage& message, Duration trip, TimePoint now) const;

 private:
  Duration patience(const ReceiveMessage& message, Duration trip) const;

  const Options& options_;
  const Duration state_time_;  // four times what an answer for one window of a State takes on the line
  Duration pause_{};           // of the message that something came of last: the next one's sender is no faster
};

}  // namespace clustar::mlt
