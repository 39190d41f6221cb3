// The one provider of this library, as libfabric knows it.
#pragma once

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <new>
#include <string>

#include "transport/base/log.h"

namespace clustar::libfabric_shim::provider {

fi_provider& provider();
// Writes to libfabric's log (FI_LOG_LEVEL).
Log provider_log();
// Why nothing works as the user has set it. On stderr, once, if libfabric's log would not show it, as it does not
// unless FI_LOG_LEVEL is set: the program only hears that there is no such provider.
void tell_refusal(const std::string& why);

// Nothing that is thrown crosses into libfabric.
template <class Call>
auto guarded(Call call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return static_cast<decltype(call())>(-FI_ENOMEM);
  } catch (...) {
    return static_cast<decltype(call())>(-FI_EOTHER);
  }
}

}  // namespace clustar::libfabric_shim::provider
