#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/udp_device.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest mlt(const std::string& name, const std::function<void(Config&)>& change) {
  return {name, [change](Log log) {
            static const SystemClock clock;
            Config config;
            config.socket_ifname = "=lo";
            change(config);
            return clustar::mlt::driver::MltTransport::create(config, clock, std::move(log),
                                                              clustar::mlt::driver::open_udp_device);
          }};
}

}  // namespace

std::vector<TransportUnderTest> mlt_under_test() {
  return {
      mlt("mlt", [](Config&) {}),
      mlt("mlt_inline", [](Config& config) { config.engine = "inline"; }),
      mlt("mlt_thread", [](Config& config) { config.engine = "thread"; }),
      mlt("mlt_ipv6", [](Config& config) { config.socket_family = "ipv6"; }),
  };
}

}  // namespace clustar::transport::conformance
