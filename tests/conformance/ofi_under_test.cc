#include "gdr/settings.h"
#include "libfabric_shim/rdm/ofi_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

// Where the provider is not there, `create` says so and the tests skip with that.
TransportUnderTest ofi(
    const std::string& name, const std::string& provider, const std::function<void(Config&)>& change = [](Config&) {}) {
  return {name, [provider, change](Log log) {
            static const SystemClock clock;
            Config config;
            config.edit<NetworkSettings>()->interfaces = "=lo";
            config.edit<OfiSettings>()->provider = provider;
            change(config);
            return ofi::OfiTransport::create({config, clock, std::move(log)});
          }};
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  std::vector<TransportUnderTest> all = {
      ofi("ofi_tcp", "tcp;ofi_rxm"),
      ofi("ofi_tcp_auto_progress", "tcp;ofi_rxm",
          [](Config& config) { config.edit<OfiSettings>()->progress = "auto"; }),
      ofi("ofi_tcp_nothing_ahead", "tcp;ofi_rxm",
          [](Config& config) {
            config.edit<OfiSettings>()->eager_bytes = 0;
            config.edit<OfiSettings>()->chunk_bytes = 4096;
          }),
      // udp;ofi_rxd is left out: it cannot hold a long message without a receive
      // (docs/results/libfabric-2026-11-27.md).
      ofi("ofi_shm", "shm"),
      // Its domain has FI_HMEM. Host memory plays a GPU's.
      ofi("ofi_shm_cuda", "shm", [](Config& config) { config.edit<GdrSettings>()->emulate = true; }),
      ofi("ofi_shm_dmabuf", "shm", [](Config& config) { config.edit<GdrSettings>()->emulate = true; }),
  };
  all[all.size() - 2].memory = gdr::MemoryKind::kCuda;
  all.back().memory = gdr::MemoryKind::kDmaBuf;
  all.front().cycles = 200;
  return all;
}

// That one needs no libfabric.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
