// A clock that stands still until a test turns it; any thread may read it.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/base/time.h"

namespace clustar::transport::conformance {

class TurnedClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(nanoseconds_.load())); }
  void advance(Duration by) { nanoseconds_ += by.count(); }

 private:
  std::atomic<std::int64_t> nanoseconds_{1000000000};
};

}  // namespace clustar::transport::conformance
