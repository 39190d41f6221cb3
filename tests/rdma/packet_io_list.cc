#include "tests/rdma/ud_under_test.h"

namespace clustar::transport::conformance {

std::vector<PacketIoUnderTest> packet_ios_under_test() {
  std::vector<PacketIoUnderTest> all = tests::ud_under_test();
  for (PacketIoUnderTest& one : decorated(all.front())) all.push_back(std::move(one));
  return all;
}

}  // namespace clustar::transport::conformance
