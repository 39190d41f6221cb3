#include "tests/conformance/packet_io_under_test.h"

namespace clustar::transport::conformance {

std::vector<PacketIoUnderTest> packet_ios_under_test() {
  std::vector<PacketIoUnderTest> all = sim_under_test();
  for (PacketIoUnderTest& one : decorated(all.front())) all.push_back(std::move(one));
  std::vector<PacketIoUnderTest> udp = udp_under_test();
  for (PacketIoUnderTest& one : decorated(udp.front())) all.push_back(std::move(one));
  for (PacketIoUnderTest& one : udp) all.push_back(std::move(one));
  for (PacketIoUnderTest& one : toy_under_test()) all.push_back(std::move(one));
  return all;
}

}  // namespace clustar::transport::conformance
