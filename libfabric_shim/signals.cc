#include "libfabric_shim/signals.h"

namespace clustar::transport::ofi {

KeptSignals::KeptSignals() {
  for (std::size_t i = 1; i < handlers_.size(); ++i) {
    known_[i] = ::sigaction(static_cast<int>(i), nullptr, &handlers_[i]) == 0;
  }
}

KeptSignals::~KeptSignals() {
  for (std::size_t i = 1; i < handlers_.size(); ++i) {
    struct sigaction now {};
    if (!known_[i] || ::sigaction(static_cast<int>(i), nullptr, &now) != 0) continue;
    const bool same = now.sa_handler == handlers_[i].sa_handler && now.sa_flags == handlers_[i].sa_flags;
    if (!same) ::sigaction(static_cast<int>(i), &handlers_[i], nullptr);
  }
}

}  // namespace clustar::transport::ofi
