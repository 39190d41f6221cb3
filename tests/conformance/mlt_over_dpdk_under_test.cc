// The list of the suite of transports, on MLT over a device of DPDK.
#include <utility>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/io/dpdk/dpdk_backend.h"
#include "transport/io/dpdk/settings.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest over_dpdk(const std::string& name, const std::string& engine) {
  return {name,
          [engine](Log log) -> Result<std::unique_ptr<Transport>> {
            static const SystemClock clock;
            Config config;
            config.edit<DpdkSettings>()->devices = "net_ring0@127.0.0.1/8";
            config.edit<DpdkSettings>()->huge_pages = "no";
            config.edit<MltSettings>()->engine = engine;
            auto backend = io::dpdk::DpdkBackend::create(config, log);
            if (!backend) return tl::unexpected(backend.error());
            return mlt::driver::MltTransport::create({config, clock, std::move(log)}, std::move(*backend));
          },
          engine == "inline"};
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  return {over_dpdk("mlt_dpdk_inline", "inline"), over_dpdk("mlt_dpdk_thread", "thread")};
}

// Those are in the suite's own program.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
