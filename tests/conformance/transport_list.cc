#include "tests/conformance/transport_under_test.h"

namespace clustar::transport::conformance {

std::vector<TransportUnderTest> transports_under_test() {
  std::vector<TransportUnderTest> all = tcp_under_test();
  for (const TransportUnderTest& one : mlt_under_test()) all.push_back(one);
  for (const TransportUnderTest& one : staged_under_test()) all.push_back(one);
  for (const TransportUnderTest& one : toy_transport_under_test()) all.push_back(one);
  return all;
}

}  // namespace clustar::transport::conformance
