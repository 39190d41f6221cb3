// The list of the suite of transports: MLT over libfabric's verbs datagrams, one after the other on the two devices.
#include <atomic>
#include <utility>

#include "libfabric_shim/dgram/ofi_backend.h"
#include "libfabric_shim/settings.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest over_ofi(const std::string& name, const std::string& engine) {
  const auto create = [engine](Log log) -> Result<std::unique_ptr<Transport>> {
    static const SystemClock clock;
    static std::atomic<unsigned> made{0};
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) {
      return fail(ErrorCode::kUnavailable, reason);
    }
    Config config;
    config.edit<NetworkSettings>()->interfaces = made++ % 2 == 0 ? "=va" : "=vb";
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<OfiSettings>()->provider = "verbs";
    config.edit<MltSettings>()->engine = engine;
    auto backend = ofi::OfiBackend::create(config, log);
    if (!backend) return tl::unexpected(backend.error());
    return mlt::driver::MltTransport::create({config, clock, std::move(log)}, std::move(*backend));
  };
  return {name, create, engine == "inline"};
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  return {over_ofi("mlt_ofi", "auto"), over_ofi("mlt_ofi_inline", "inline")};
}

// They need no device.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
