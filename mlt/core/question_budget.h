// How often the connections of one endpoint may ask their peers what became of a message.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "transport/base/time.h"

namespace clustar::mlt {

// Each connection takes silence for a loss. Where thousands wait for one busy host, nothing is lost, but their
// questions and the answers would take its processor from what they ask about. A token bucket (as a generic cell rate
// algorithm, ITU-T I.371): 64 questions at once, 5,000 per second, and one more for every 16 packets that bring
// something. Who has to wait lines up.
class QuestionBudget {
 public:
  // Nothing: the question may be asked. Otherwise when to try again. `place` is the message's place in the line, which
  // is kept between the calls and given up by {}: who asks often does not pass who has waited.
  std::optional<TimePoint> take(TimePoint& place, TimePoint now) {
    if (place > now) return place;
    if (std::exchange(place, TimePoint{}) != TimePoint{}) return std::nullopt;
    const TimePoint next = std::max(next_, now - (kBurst - 1) * kApart);
    if (next > now + kFarthest) return some_time(now);
    next_ = next + kApart;
    if (next <= now) return std::nullopt;
    return place = next;
  }
  // A packet brought something that the endpoint waited for.
  void earn() { next_ -= kApart / 16; }

 private:
  static constexpr int kBurst = 64;
  static constexpr Duration kApart = std::chrono::microseconds(200);
  static constexpr Duration kFarthest = std::chrono::milliseconds(200);

  // For one that finds the line full: at random, or the same ones would find it full again.
  TimePoint some_time(TimePoint now) {
    random_ = random_ * 1664525 + 1013904223;  // Numerical Recipes, section 7.1
    return now + Duration(1 + static_cast<Duration::rep>((kFarthest.count() * std::uint64_t{random_}) >> 32));
  }

  TimePoint next_{};  // the first place that is free
  std::uint32_t random_ = 1;
};

}  // namespace clustar::mlt
