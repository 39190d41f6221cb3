#include "tests/conformance/mlt_over_devices.h"
#include "transport/io/udp/udp_io.h"

namespace clustar::mlt {

using transport::io::udp::UdpIo;

Result<TwoDevices> two_devices() {
  std::array<std::unique_ptr<UdpIo>, 2> opened;
  for (auto& device : opened) {
    auto one = UdpIo::open({.local = "127.0.0.1", .paths = 4});
    if (!one) return tl::unexpected(one.error());
    device = std::move(*one);
  }
  TwoDevices two;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto peer = opened[i]->add_peer(opened[1 - i]->local());
    if (!peer) return tl::unexpected(peer.error());
    two.peers[i] = *peer;
  }
  for (std::size_t i = 0; i < 2; ++i) two.devices[i] = std::move(opened[i]);
  return two;
}

}  // namespace clustar::mlt
