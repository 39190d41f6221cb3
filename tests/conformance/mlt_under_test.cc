#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/psk_file.h"
#include "transport/base/system_clock.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest mlt(const std::string& name, const std::function<void(Config&)>& change,
                       bool only_calls_move_bytes = false) {
  return {name,
          [change](Log log) -> Result<std::unique_ptr<Transport>> {
            static const SystemClock clock;
            Config config;
            config.edit<NetworkSettings>()->interfaces = "=lo";
            change(config);
            auto backend = io::udp::UdpBackend::create(config);
            if (!backend) return tl::unexpected(backend.error());
            return clustar::mlt::driver::MltTransport::create({config, clock, std::move(log)}, std::move(*backend));
          },
          only_calls_move_bytes};
}

// Read when a transport is made, and gone with the process.
std::function<void(Config&)> with_psk(const std::string& mode) {
  return [mode](Config& config) {
    static const tests::PskFile file("the secret of the conformance suite");
    config.edit<MltSettings>()->psk_file = file.path();
    config.edit<MltSettings>()->psk_mode = mode;
  };
}

}  // namespace

std::vector<TransportUnderTest> mlt_under_test() {
  return {
      mlt("mlt", [](Config&) {}),
      mlt(
          "mlt_inline", [](Config& config) { config.edit<MltSettings>()->engine = "inline"; }, true),
      mlt("mlt_thread", [](Config& config) { config.edit<MltSettings>()->engine = "thread"; }),
      mlt("mlt_engines",
          [](Config& config) {
            config.edit<MltSettings>()->engine = "thread";
            config.edit<MltSettings>()->engines = 3;
          }),
      mlt("mlt_ipv6", [](Config& config) { config.edit<NetworkSettings>()->family_name = "ipv6"; }),
      mlt("mlt_psk", with_psk("authenticate")),
      mlt("mlt_psk_encrypt", with_psk("encrypt")),
  };
}

}  // namespace clustar::transport::conformance
