#include "mlt/driver/udp_device.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "transport/io/udp/udp_io.h"

namespace clustar::mlt::driver {
namespace {

namespace udp = transport::io::udp;

// Enough to spread over equal-cost routes; each costs a socket per device.
constexpr std::uint8_t kPaths = 8;

udp::IpAddress ip_of(const net::Address& address) {
  const net::Endpoint endpoint = address.endpoint();
  udp::IpAddress ip;
  ip.ipv6 = endpoint.ipv6;
  const std::size_t length = endpoint.ipv6 ? 16 : 4;
  std::transform(endpoint.address.begin(), endpoint.address.begin() + static_cast<std::ptrdiff_t>(length),
                 ip.bytes.begin(), [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return ip;
}

std::string describe(const udp::UdpIo& io) {
  const udp::UdpCounters& count = io.counters();
  return "udp: " + std::to_string(count.send_calls) + " send calls, " + std::to_string(count.receive_calls) +
         " receive calls, " + std::to_string(count.kernel_drops) + " dropped by the kernel, " +
         std::to_string(count.strangers) + " from strangers" +
         (count.fragmented > 0 ? ", " + std::to_string(count.fragmented) + " sent in fragments" : "");
}

}  // namespace

Result<Device> open_udp_device(const net::Interface&, const net::Address& local) {
  udp::UdpOptions options;
  options.local = ip_of(local).to_string();
  options.paths = kPaths;
  auto opened = udp::UdpIo::open(options);
  if (!opened) return tl::unexpected(opened.error());
  udp::UdpIo* io = opened->get();
  Device device;
  device.ports.count = static_cast<std::uint8_t>(std::min(io->local().ports.size(), kMaxPorts));
  std::copy_n(io->local().ports.begin(), device.ports.count, device.ports.port.begin());
  device.add_peer = [io](const net::Address& host, const Ports& ports) -> Result<transport::io::PeerId> {
    udp::UdpAddress address{ip_of(host), {}};
    for (const std::uint32_t port : ports.all()) {
      if (port > UINT16_MAX) return fail(ErrorCode::kRemote, "udp: the peer names a port " + std::to_string(port));
      address.ports.push_back(static_cast<std::uint16_t>(port));
    }
    return io->add_peer(address);
  };
  device.remove_peer = [io](io::PeerId peer) { static_cast<void>(io->remove_peer(peer)); };
  device.allow_fragments = [io] { return io->allow_fragments(); };
  device.describe = [io] { return describe(*io); };
  device.readable_fds = io->readable_fds();
  device.io = std::move(*opened);
  return device;
}

}  // namespace clustar::mlt::driver
