// The list of the suite of transports, on MLT over libfabric's datagrams.
#include <utility>

#include "libfabric_shim/dgram/ofi_backend.h"
#include "libfabric_shim/settings.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest over_ofi(const std::string& name, const std::string& engine) {
  return {name,
          [engine](Log log) -> Result<std::unique_ptr<Transport>> {
            static const SystemClock clock;
            Config config;
            config.edit<NetworkSettings>()->interfaces = "=lo";
            config.edit<NetworkSettings>()->family_name = "ipv4";
            config.edit<OfiSettings>()->provider = "udp";
            config.edit<MltSettings>()->engine = engine;
            auto backend = ofi::OfiBackend::create(config, log);
            if (!backend) return tl::unexpected(backend.error());
            return mlt::driver::MltTransport::create({config, clock, std::move(log)}, std::move(*backend));
          },
          engine == "inline"};
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  return {over_ofi("mlt_ofi_inline", "inline"), over_ofi("mlt_ofi_thread", "thread")};
}

// Those are in the suite's own program.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
