// When a peer that was to do something has been silent for too long (CLUSTAR_STALL_TIMEOUT). Pure.
#pragma once

#include "transport/base/time.h"

namespace clustar::libfabric_shim::provider {

class Silence {
 public:
  // `limit` 0: never.
  explicit Silence(Duration limit) : limit_(limit) {}

  bool watches() const { return limit_ != Duration::zero(); }
  // Asked at every poll. `moved`: something ended since the last one, or nothing is waited for. A pause of the
  // program's own is no silence of the peer's: what it sent meanwhile is seen in the polls that follow.
  bool over(bool moved, TimePoint now) {
    if (!watches()) return false;
    if (moved || now - asked_ > limit_ / 2) since_ = now;
    asked_ = now;
    return now - since_ > limit_;
  }

 private:
  Duration limit_;
  TimePoint since_{};
  TimePoint asked_{};
};

}  // namespace clustar::libfabric_shim::provider
