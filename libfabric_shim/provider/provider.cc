// What libfabric loads: FI_PROVIDER_PATH names the folder of libclustar-fi.so.
#include "libfabric_shim/provider/provider.h"

#include <rdma/fi_errno.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "libfabric_shim/provider/domain.h"
#include "libfabric_shim/provider/info.h"
#include "libfabric_shim/provider/settings.h"

namespace clustar::libfabric_shim::provider {

fi_provider& provider() {
  static fi_provider made = [] {
    fi_provider what{};
    what.version = FI_VERSION(0, 1);
    what.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    what.name = "clustar";
    what.getinfo = get_info;
    what.fabric = Fabric::open;
    what.cleanup = [] {};
    return what;
  }();
  return made;
}

Log provider_log() {
  return Log([](LogLevel level, const std::string& message) {
    const fi_log_level theirs = level == LogLevel::kWarn ? FI_LOG_WARN : FI_LOG_INFO;
    FI_LOG(&provider(), theirs, FI_LOG_CORE, "%s\n", message.c_str());
  });
}

void tell_refusal(const std::string& why) {
  static std::atomic<bool> told{false};
  if (fi_log_enabled(&provider(), FI_LOG_WARN, FI_LOG_CORE) != 0) {
    provider_log().warn("clustar: " + why);
  } else if (!told.exchange(true)) {
    std::fprintf(stderr, "libfabric provider clustar: %s\n", why.c_str());
  }
}

}  // namespace clustar::libfabric_shim::provider

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  namespace ours = clustar::libfabric_shim::provider;
  const int declared = ours::guarded([] {
    ours::declare_settings();
    return 0;
  });
  return declared == 0 ? &ours::provider() : nullptr;
}
