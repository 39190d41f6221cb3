#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/cable.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest over_cable(const std::string& name, const tests::Cable::Change& change, bool fused = false) {
  return {name, [change, fused](Log log) -> Result<std::unique_ptr<Transport>> {
            auto made = tests::Cable::make(change, std::move(log));
            if (!made) return tl::unexpected(made.error());
            if (fused) {
              if (const auto done = (*made)->fuse_both(); !done) return tl::unexpected(done.error());
            }
            return std::move(*made);
          }};
}

}  // namespace

std::vector<TransportUnderTest> transports_under_test() {
  using verbs::Choice;
  using verbs::Settings;
  std::vector<TransportUnderTest> all = {
      over_cable("verbs", [](Settings&) {}),
      // Every path that the other does not take: four queue pairs over both ports of one device, nothing ahead.
      over_cable(
          "verbs_striped",
          [](Settings& settings) {
            settings.queue_pairs = 2;
            settings.min_stripe_bytes = 4096;
            settings.eager_bytes = 0;
            settings.adaptive_routing = Choice::kOn;
          },
          true),
  };
  for (TransportUnderTest& one : all) one.cycles = 10;
  all.front().cycles = 40;
  return all;
}

// That one needs no device.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
