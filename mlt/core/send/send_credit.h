// What a sender may send by its receiver's credit.
#pragma once

#include <cstdint>

#include "mlt/core/credit.h"
#include "mlt/core/wire.h"

namespace clustar::mlt {

// Both sums count units of all packets of the connection, and wrap.
class SendCredit {
 public:
  // No receiver gives more than its largest window beyond what was sent.
  bool is_possible(std::uint32_t credit) const { return distance(credit, sent_) <= static_cast<std::int32_t>(kMost); }
  // Of a packet that may be older than others.
  void take(std::uint32_t credit) {
    if (distance(credit, credit_) > 0) credit_ = credit;
  }
  // Sent, by credit or ahead of it.
  void spend(std::uint32_t bytes) { sent_ += units(bytes); }

  bool covers(std::uint32_t bytes) const { return bytes == 0 || distance(credit_, sent_ + units(bytes)) >= 0; }
  std::uint32_t sent_units() const { return sent_; }

 private:
  static constexpr std::uint32_t kMost = units(CreditShare::kMaxWindow) + 1;
  std::uint32_t sent_ = 0, credit_ = 0;
};

}  // namespace clustar::mlt
