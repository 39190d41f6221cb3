// When the next packet may leave at a given rate.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/base/time.h"

namespace clustar::mlt {

// A token bucket in units of 10^-9 bytes, the product of bytes/s and ns: nothing is ever rounded, so nothing drifts.
// In any interval T at most rate * T + burst + one packet leave. Value type.
class Pacer {
 public:
  // rate: bytes/s, at least 1 (0 counts as 1). burst: bytes that may leave at once after idling; no idle time saves up
  // more. Starts with a full burst.
  Pacer(std::uint64_t rate, std::uint32_t burst, TimePoint now)
      : rate_(std::max<std::uint64_t>(rate, 1)), burst_(burst), debt_(-kNano * burst), at_(now) {}

  std::uint64_t rate() const { return rate_; }
  // What was sent so far is paid at the old rate up to `now`, the rest at the new one.
  void set_rate(std::uint64_t rate, TimePoint now) {
    pay(now);
    rate_ = std::max<std::uint64_t>(rate, 1);
  }
  // From now on; what idle time saved up beyond it is lost.
  void set_burst(std::uint32_t burst) { burst_ = burst; }

  // The first moment, not before `now`, at which a packet of any size may leave: when no debt is left. TimePoint::max()
  // when that lies beyond what time can hold.
  TimePoint next_send(TimePoint now) const {
    const Wide debt = debt_at(now);
    if (debt <= 0) return now;
    const Wide wait = (debt + rate_ - 1) / rate_;
    const Wide left = (TimePoint::max() - now).count();
    return wait >= left ? TimePoint::max() : now + Duration(static_cast<Duration::rep>(wait));
  }
  void on_sent(std::uint32_t bytes, TimePoint now) {
    pay(now);
    debt_ += kNano * bytes;
  }

 private:
  using Wide = __int128;
  static constexpr Wide kNano = 1'000'000'000;

  Wide debt_at(TimePoint now) const {
    const Wide paid = now > at_ ? Wide{(now - at_).count()} * rate_ : 0;  // below 2^127
    // A moment is a whole number of ns: what waiting for the next one overpays, less than one ns, stays.
    return std::max(debt_ - paid, -kNano * burst_ - (Wide{rate_} - 1));
  }
  void pay(TimePoint now) {
    debt_ = debt_at(now);
    at_ = std::max(at_, now);
  }

  std::uint64_t rate_;
  std::uint32_t burst_;
  Wide debt_;  // sent and not yet paid; negative: credit, down to the burst
  TimePoint at_;
};

}  // namespace clustar::mlt
