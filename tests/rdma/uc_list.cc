#include "tests/rdma/uc_ends.h"

namespace clustar::transport::conformance {

std::vector<PacketIoUnderTest> packet_ios_under_test() { return tests::uc_under_test(); }

}  // namespace clustar::transport::conformance
