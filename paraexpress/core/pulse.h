// Whether a helper lives: one that is silent for long while something is expected of it is asked, and has to answer.
// Else a helper that waits for a slow rank could not be told from one that stands still.
#pragma once

#include <optional>

#include "transport/base/time.h"

namespace clustar::paraexpress {

class Pulse {
 public:
  static constexpr Duration kQuiet = std::chrono::milliseconds(300);
  static constexpr Duration kAnswer = std::chrono::seconds(1);
  static constexpr Duration kBlind = std::chrono::milliseconds(200);

  // Something is expected of it from now on; or a message of it came or was taken by it.
  void heard(TimePoint now) {
    heard_ = now;
    if (asked_) asked_ = now;
  }
  void answered(TimePoint now) {
    heard_ = now;
    asked_.reset();
  }
  // True: it is to be asked; then asked() says when that was done. One question at a time.
  bool should_ask(TimePoint now) const { return !asked_ && now - heard_ >= kQuiet; }
  void asked(TimePoint now) { asked_ = looked_ = now; }
  // To be asked often. Who did not look for a while, because it stood still itself, may have the answer unread: its
  // time begins again.
  bool dead(TimePoint now) {
    if (asked_ && now - looked_ >= kBlind) asked_ = now;
    looked_ = now;
    return asked_ && now - *asked_ >= kAnswer;
  }

 private:
  TimePoint heard_{}, looked_{};
  std::optional<TimePoint> asked_{};
};

}  // namespace clustar::paraexpress
