// How often the connections of one endpoint may ask, out of silence, what became of a message.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "transport/base/time.h"

namespace clustar::mlt {

// Each connection takes silence for a loss. Where thousands wait for one busy host, nothing is lost, but their
// questions and the answers would take its processor from what they ask about. A token bucket (as a generic cell rate
// algorithm, ITU-T I.371): 64 questions at once, 5,000 per second, and one more for every 16 packets of data or
// acknowledgements that come. On a slow line fewer: at most a sixteenth of it, or those who wait for their turn to send
// would fill it in the highest class.
class QuestionBudget {
 public:
  // `line_rate`: bytes/s of the NIC, above 0.
  explicit QuestionBudget(std::uint64_t line_rate = kFastLine)
      : apart_(std::max(
            kApart, Duration(static_cast<Duration::rep>(16e9 * kQuestionBytes / static_cast<double>(line_rate))))) {}

  // nullopt: ask now. Otherwise the message tries again at that time, and not before, at most 200 ms from now: at
  // random, over the longer a time the more were refused, so that those who ask often get no more than others.
  std::optional<TimePoint> take(TimePoint now) {
    const TimePoint next = std::max(next_, now - (kBurst - 1) * apart_);
    if (next > now) return some_time(now);
    if (next < now - kBurst / 2 * apart_) refused_ = 0;
    refused_ -= std::min<std::uint32_t>(refused_, 1);
    next_ = next + apart_;
    return std::nullopt;
  }
  // One of those packets came.
  void earn() { next_ -= apart_ / 16; }

 private:
  static constexpr int kBurst = 64;
  static constexpr Duration kApart = std::chrono::microseconds(200);
  static constexpr int kQuestionBytes = 200;  // on the line, with the answer
  static constexpr std::uint64_t kFastLine = 12'500'000'000;
  static constexpr std::uint32_t kMostRefused = 500;  // that count
  static constexpr Duration kLongest = std::chrono::milliseconds(200);

  TimePoint some_time(TimePoint now) {
    refused_ = std::min(refused_ + 1, kMostRefused);
    random_ = random_ * 1664525 + 1013904223;  // Numerical Recipes, section 7.1
    const auto most = static_cast<std::uint64_t>(std::min(kLongest, 2 * apart_ * refused_).count());
    return now + Duration(1 + static_cast<Duration::rep>((most * random_) >> 32));
  }

  Duration apart_;
  TimePoint next_{};           // up to now: as many questions as are apart_ apart until now may be asked
  std::uint32_t refused_ = 0;  // about as many messages wait
  std::uint32_t random_ = 1;
};

}  // namespace clustar::mlt
