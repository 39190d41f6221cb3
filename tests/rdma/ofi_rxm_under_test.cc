// The list of the suite of transports: libfabric's reliable datagrams over the two SoftRoCE devices. What connects is
// rxe_a, what listens is rxe_b.
#include <utility>

#include "libfabric_shim/rdm/ofi_transport.h"
#include "libfabric_shim/settings.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

class OfiCable final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> make(const std::function<void(Config&)>& change, Log log) {
    static const SystemClock clock;
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) {
      return fail(ErrorCode::kUnavailable, reason);
    }
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=va,vb";
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<OfiSettings>()->provider = "verbs;ofi_rxm";
    change(config);
    auto inner = ofi::OfiTransport::create({config, clock, std::move(log)});
    if (!inner) return tl::unexpected(inner.error());
    if ((*inner)->devices().size() != 2) return fail(ErrorCode::kUnavailable, "va and vb are not two devices of it");
    const int connects = (*inner)->devices()[0].name == "va" ? 0 : 1;
    return std::unique_ptr<Transport>(new OfiCable(std::move(*inner), connects));
  }

  const char* name() const override { return inner_->name(); }
  std::span<const DeviceProperties> devices() const override { return inner_->devices(); }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override {
    return inner_->listen(device == 0 ? 1 - connects_ : device, options);
  }
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override {
    return inner_->connect(device == 0 ? connects_ : device, handle, options);
  }
  Counters counters() const override { return inner_->counters(); }

 private:
  OfiCable(std::unique_ptr<Transport> inner, int connects) : inner_(std::move(inner)), connects_(connects) {}

  std::unique_ptr<Transport> inner_;
  const int connects_;
};

TransportUnderTest over_cable(const std::string& name, const std::function<void(Config&)>& change) {
  TransportUnderTest one{name, [change](Log log) { return OfiCable::make(change, std::move(log)); }};
  one.cycles = 10;
  return one;
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  return {over_cable("ofi_rxm", [](Config&) {}), over_cable("ofi_rxm_nothing_ahead", [](Config& config) {
            config.edit<OfiSettings>()->eager_bytes = 0;
            config.edit<OfiSettings>()->chunk_bytes = 4096;
          })};
}

// That one needs no device.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
