// The list of the suite over verbs UD.
#include "mlt/driver/verbs_device.h"
#include "tests/rdma/mlt_over_cable.h"

namespace clustar::transport::conformance {

std::vector<TransportUnderTest> transports_under_test() {
  const auto open = mlt::driver::open_verbs_ud_device;
  return {mlt_over_cable("mlt_ud", "auto", "", open), mlt_over_cable("mlt_ud_inline", "inline", "", open),
          mlt_over_cable("mlt_ud_psk_encrypt", "thread", "encrypt", open)};
}

// They need no device, and are in the suite's program without them.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
