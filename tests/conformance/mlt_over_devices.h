// The two devices that mlt_over_udp_test.cc runs the MLT core over: each program's own kind of packets.
#pragma once

#include <array>
#include <memory>

#include "transport/io/packet_io.h"

namespace clustar::mlt {

struct TwoDevices {
  std::array<std::unique_ptr<transport::io::PacketIo>, 2> devices{};
  std::array<transport::io::PeerId, 2> peers{};  // how each names the other
};
// On loopback, with 4 paths.
Result<TwoDevices> two_devices();

}  // namespace clustar::mlt
