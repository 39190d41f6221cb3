// The list of the suite over verbs UC.
#include "tests/rdma/mlt_over_cable.h"

namespace clustar::transport::conformance {

std::vector<TransportUnderTest> transports_under_test() {
  const auto kind = io::verbs::VerbsBackend::Kind::kUc;
  return {mlt_over_cable("mlt_uc", "auto", "", kind), mlt_over_cable("mlt_uc_inline", "inline", "", kind),
          mlt_over_cable("mlt_uc_psk_encrypt", "thread", "encrypt", kind)};
}

// They need no device, and are in the suite's program without them.
std::vector<TransportUnderTest> mlt_elsewhere_under_test() { return {}; }

}  // namespace clustar::transport::conformance
