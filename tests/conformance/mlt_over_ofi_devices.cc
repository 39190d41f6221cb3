#include "tests/conformance/mlt_over_devices.h"
#include "tests/conformance/ofi_packets_under_test.h"

namespace clustar::mlt {

Result<TwoDevices> two_devices() {
  TwoDevices two;
  for (auto& device : two.devices) {
    auto one = transport::conformance::open_ofi("udp", "127.0.0.1", {.paths = 4});
    if (!one) return tl::unexpected(one.error());
    device = std::move(*one);
  }
  const transport::net::Endpoint loopback{false, 0, {std::byte{127}, {}, {}, std::byte{1}}};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto peer = two.devices[i]->add_peer(two.devices[1 - i]->local_address(), loopback);
    if (!peer) return tl::unexpected(peer.error());
    two.peers[i] = *peer;
  }
  return two;
}

}  // namespace clustar::mlt
