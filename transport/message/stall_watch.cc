#include "transport/message/stall_watch.h"

namespace clustar::transport {

StallWatch::Verdict StallWatch::check(bool outstanding, std::uint64_t progress, TimePoint now) {
  if (!outstanding || !watching_ || progress != progress_) {
    watching_ = outstanding;
    progress_ = progress;
    since_ = now;
    silent_ = Duration(0);
    next_warning_ = kFirstWarning;
    return Verdict::kFine;
  }
  silent_ = now - since_;
  if (fail_after_ > Duration(0) && silent_ >= fail_after_) return Verdict::kFail;
  if (silent_ < next_warning_) return Verdict::kFine;
  next_warning_ = silent_ * 2;
  return Verdict::kWarn;
}

}  // namespace clustar::transport
