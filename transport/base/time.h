// Time as a value. Only a Clock reads the machine's time; everything else is given a TimePoint.
#pragma once

#include <chrono>
#include <cstdint>

namespace clustar {

struct MonotonicTag {  // a clock type that cannot be asked for the time
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<MonotonicTag>;
  static constexpr bool is_steady = true;
};

using Duration = std::chrono::nanoseconds;
using TimePoint = MonotonicTag::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;  // never decreases; any thread
};

}  // namespace clustar
