// MLT over verbs UC: rank by rank on the two devices of one host, so that each message crosses the cable.
#include <atomic>
#include <functional>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/verbs_uc_device.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/psk_file.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"

namespace clustar::transport::conformance {
namespace {

namespace driver = mlt::driver;

TransportUnderTest over_uc(const std::string& name, const std::string& engine, const std::string& psk_mode) {
  const auto create = [engine, psk_mode](Log log) -> Result<std::unique_ptr<Transport>> {
    static const SystemClock clock;
    static std::atomic<unsigned> made{0};
    static const tests::PskFile file("the secret of the suite over UC");
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) {
      return fail(ErrorCode::kUnavailable, reason);
    }
    Config config;
    config.socket_ifname = made++ % 2 == 0 ? "=va" : "=vb";
    config.socket_family = "ipv4";
    config.engine = engine;
    if (!psk_mode.empty()) {
      config.psk_file = file.path();
      config.psk_mode = psk_mode;
    }
    return driver::MltTransport::create(config, clock, std::move(log),
                                        std::bind_front(driver::open_verbs_uc_device, config));
  };
  return {name, create, engine == "inline"};
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  return {over_uc("mlt_uc", "auto", ""), over_uc("mlt_uc_inline", "inline", ""),
          over_uc("mlt_uc_psk_encrypt", "thread", "encrypt")};
}

std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
