// How connections heal, where it is not MLT's own way: what others do, on the same packets, credit and congestion
// control. For comparisons: none is part of the plugin (mlt/compare).
#pragma once

#include <cstdint>

#include "transport/base/time.h"

namespace clustar::mlt {

// What the core asks of a replacement of MLT's own recovery (Options::recovery). An answer that is not
// overridden is MLT's, but no receiver proves losses, asks or decides by itself. Has no state that changes: many
// connections use one.
class Recovery {
 public:
  virtual ~Recovery() = default;

  // Both ends have the same; 1 .. 255, and 0 is MLT's own.
  virtual std::uint8_t number() const = 0;

  // The sender uses one path and one class, so that nothing passes what left before it, and loses nothing for good.
  virtual bool in_order() const { return false; }
  // An acknowledgement that tells nothing new makes the sender send again all that is on its way.
  virtual bool goes_back() const { return false; }
  // What is not acknowledged in time is lost.
  virtual bool loses_by_time() const { return true; }
  // What is lost is not sent again, and a receiver may end any message: breaks the loss contract.
  virtual bool gives_up() const { return false; }
  // Whether a receiver that has `received` packets of a message, all in a row, takes the one with this index.
  virtual bool takes(std::uint32_t index, std::uint32_t received) const {
    (void)index, (void)received;
    return true;
  }
  // When a message whose first packet came at `first_at` ends, whatever is missing; max(): once it is complete.
  virtual TimePoint ends_at(TimePoint first_at) const {
    (void)first_at;
    return TimePoint::max();
  }
};

// Of a connection's; null is MLT's own.
inline bool in_order(const Recovery* recovery) { return recovery != nullptr && recovery->in_order(); }
inline bool goes_back(const Recovery* recovery) { return recovery != nullptr && recovery->goes_back(); }
inline bool loses_by_time(const Recovery* recovery) { return recovery == nullptr || recovery->loses_by_time(); }
inline bool gives_up(const Recovery* recovery) { return recovery != nullptr && recovery->gives_up(); }

}  // namespace clustar::mlt
