#include "transport/io/udp/udp_backend.h"

#include <utility>

#include "transport/io/control_network.h"
#include "transport/io/udp/udp_io.h"
#include "transport/net/settings.h"

namespace clustar::transport::io::udp {
namespace {

// Enough to spread over equal-cost routes; each costs a socket per device.
constexpr std::uint8_t kPaths = 8;

}  // namespace

Result<std::unique_ptr<PacketBackend>> UdpBackend::create(const Config& config) {
  const auto network = config.get<NetworkSettings>();
  auto interfaces = net::find_interfaces(network.interfaces, network.family());
  if (!interfaces) return tl::unexpected(interfaces.error());
  net::set_speed(*interfaces, network.line_mbps);
  return std::unique_ptr<PacketBackend>(new UdpBackend(config, std::move(*interfaces)));
}

Result<std::vector<DeviceInfo>> UdpBackend::devices() {
  std::vector<DeviceInfo> devices;
  for (const net::Interface& interface : interfaces_) {
    const auto control = control_address(config_, interface.addresses.front().endpoint());
    if (!control) return tl::unexpected(control.error());
    devices.push_back({interface.name, interface.pci_path, interface.speed_mbps, *control});
  }
  return devices;
}

Result<std::unique_ptr<PacketIo>> UdpBackend::open(std::size_t device) {
  const net::Interface& interface = interfaces_.at(device);
  UdpOptions options;
  options.local = ip_of(interface.addresses.front().endpoint()).to_string();
  options.paths = kPaths;
  options.apart = is_apart(config_);
  options.line_rate_bps = interface.knows_speed() ? 8 * interface.bytes_per_second() : 0;
  auto opened = UdpIo::open(options);
  if (!opened) return tl::unexpected(opened.error());
  return std::move(*opened);
}

}  // namespace clustar::transport::io::udp
