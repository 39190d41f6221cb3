#include "tests/conformance/toy_transport/toy_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"

namespace clustar::transport::conformance {

std::vector<TransportUnderTest> toy_transport_under_test() {
  const auto toy = [](const std::string& name, const std::string& order) {
    return TransportUnderTest{name, [order](const Log& log) {
                                static const SystemClock clock;
                                Config config;
                                config.edit<SendOrderSettings>()->order = order;
                                return toy::ToyTransport::create({config, clock, log});
                              }};
  };
  return {toy("toy", "fifo"), toy("toy_by_class", "class")};
}

}  // namespace clustar::transport::conformance
