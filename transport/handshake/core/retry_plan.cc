#include "transport/handshake/core/retry_plan.h"

namespace clustar::transport::handshake {

std::optional<Error> RetryPlan::on_failure(const Error& error, TimePoint now) {
  if (error.code != ErrorCode::kRemote) return error;
  if (failures_++ == 0) {
    first_error_ = error;
    first_failure_ = now;
  }
  const bool all_tried = failures_ >= endpoints_;
  if (all_tried && now - first_failure_ >= kRetryTimeout) return first_error_;
  endpoint_ = (endpoint_ + 1) % endpoints_;
  next_try_ = all_tried ? now + kRetryInterval : now;
  return std::nullopt;
}

}  // namespace clustar::transport::handshake
