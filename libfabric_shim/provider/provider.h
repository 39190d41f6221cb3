// The one provider of this library, as libfabric knows it.
#pragma once

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <new>

#include "transport/base/log.h"

namespace clustar::libfabric_shim::provider {

fi_provider& provider();
// Writes to libfabric's log (FI_LOG_LEVEL).
Log provider_log();

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
