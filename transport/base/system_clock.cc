#include "transport/base/system_clock.h"

namespace clustar {

TimePoint SystemClock::now() const {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return TimePoint(std::chrono::duration_cast<Duration>(since_start));
}

}  // namespace clustar
