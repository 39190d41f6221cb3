#include "transport/io/verbs/ud_cycle.h"

#include <algorithm>

namespace clustar::transport::io::verbs {

UdCycle::Verdict UdCycle::on_failure(TimePoint now, bool port_active) {
  if (since_ && now - down_at_ > kMemory) {
    since_.reset();
    active_since_.reset();
  }
  down_ = true;
  down_at_ = now;
  since_ = since_.value_or(now);
  if (port_active) {
    active_since_ = active_since_.value_or(now);
  } else {
    active_since_.reset();
  }
  if (active_since_ && now - *active_since_ > kPatience) return Verdict::kPair;
  if (now - *since_ <= link_patience_) return Verdict::kGoesOn;
  return Verdict::kPort;
}

void UdCycle::on_resumed(TimePoint now) {
  down_ = false;
  resumed_at_ = now;
}

void UdCycle::on_success(TimePoint now) {
  if (down_ || now - resumed_at_ < kProof) return;
  since_.reset();
  active_since_.reset();
}

std::optional<TimePoint> UdSweep::on_taken(std::size_t count, TimePoint now) {
  if (count == 0) {
    left_ = 0;
    return now;
  }
  if (left_ == 0) {
    since_ = now;
    left_ = most_;
  }
  left_ -= std::min(left_, count);
  return left_ == 0 ? std::optional(since_) : std::nullopt;
}

}  // namespace clustar::transport::io::verbs
