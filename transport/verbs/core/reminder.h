// When a queue pair on which nothing moves is to be written to once more, and when its device has lost what it was
// given. Of one pair; pure.
//
// A NIC completes or fails each write within its retries. rdma_rxe may do neither after a link's return (Linux 6.1): it
// forgets to repeat, until it has something else to send, or for good.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "transport/base/time.h"

namespace clustar::transport::verbs {

class Reminder {
 public:
  enum class Due : std::uint8_t { kNothing, kWrite, kOverdue };

  // `horizon`: until a NIC gives a write up.
  explicit Reminder(Duration horizon = Duration(0)) : patience_(std::max<Duration>(kLeast, 2 * horizon)) {}

  // To be asked in silence. `open`: writes are not acknowledged; `acknowledged`: the number of the latest that is.
  Due due(bool open, std::uint32_t acknowledged, TimePoint now) {
    if (!open || (number_ && static_cast<std::int32_t>(acknowledged - *number_) >= 0)) number_.reset();
    if (!open) return Due::kNothing;
    if (!number_) return Due::kWrite;
    return now - since_ > patience_ ? Due::kOverdue : Due::kNothing;
  }
  // What kWrite asked for was posted, with this number.
  void posted(std::uint32_t number, TimePoint now) {
    number_ = number;
    since_ = now;
  }
  Duration patience() const { return patience_; }

 private:
  static constexpr Duration kLeast = std::chrono::seconds(2);

  Duration patience_;
  std::optional<std::uint32_t> number_;  // of the reminder that is not acknowledged
  TimePoint since_{};
};

}  // namespace clustar::transport::verbs
