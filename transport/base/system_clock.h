// The machine's monotonic clock, kept apart from time.h so that a pure core cannot reach it.
#pragma once

#include "transport/base/time.h"

namespace clustar {

class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
};

}  // namespace clustar
