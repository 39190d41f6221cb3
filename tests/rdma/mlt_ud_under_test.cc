// The list of the suite over verbs UD.
#include "tests/rdma/mlt_over_cable.h"

namespace clustar::transport::conformance {

std::vector<TransportUnderTest> transports_under_test() {
  const auto kind = io::verbs::VerbsBackend::Kind::kUd;
  return {mlt_over_cable("mlt_ud", "auto", "", kind), mlt_over_cable("mlt_ud_inline", "inline", "", kind),
          mlt_over_cable("mlt_ud_psk_encrypt", "thread", "encrypt", kind)};
}

// They need no device, and are in the suite's program without them.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
