#include "tests/rdma/mlt_over_cable.h"

#include <atomic>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/psk_file.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {

TransportUnderTest mlt_over_cable(const std::string& name, const std::string& engine, const std::string& psk_mode,
                                  io::verbs::VerbsBackend::Kind kind) {
  const auto create = [engine, psk_mode, kind](Log log) -> Result<std::unique_ptr<Transport>> {
    static const SystemClock clock;
    static std::atomic<unsigned> made{0};
    static const tests::PskFile file("the secret of the suite over verbs");
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) {
      return fail(ErrorCode::kUnavailable, reason);
    }
    Config config;
    config.edit<NetworkSettings>()->interfaces = made++ % 2 == 0 ? "=va" : "=vb";
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<MltSettings>()->engine = engine;
    if (!psk_mode.empty()) {
      config.edit<MltSettings>()->psk_file = file.path();
      config.edit<MltSettings>()->psk_mode = psk_mode;
    }
    auto backend = io::verbs::VerbsBackend::create(kind, config, log);
    if (!backend) return tl::unexpected(backend.error());
    return mlt::driver::MltTransport::create({config, clock, std::move(log)}, std::move(*backend));
  };
  return {name, create, engine == "inline"};
}

}  // namespace clustar::transport::conformance
