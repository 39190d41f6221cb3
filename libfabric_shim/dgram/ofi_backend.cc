#include "libfabric_shim/dgram/ofi_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fi_errno.h>

#include "libfabric_shim/dgram/choice.h"
#include "libfabric_shim/failure.h"
#include "libfabric_shim/settings.h"
#include "transport/io/control_network.h"
#include "transport/io/verbs/settings.h"
#include "transport/net/settings.h"

namespace clustar::transport::ofi {
namespace {

// As many as over UDP: enough to spread over equal-cost routes.
constexpr std::uint8_t kPaths = 8;
// Below this MLT's bursts are longer than a socket's buffer.
constexpr std::size_t kEnoughRoom = 1 << 20;

std::string rdma_forbidden_by(const Config& config) {
  if (!config.get<IbSettings>().disable) return {};
  return config.source("ib_disable") == "NCCL_IB_DISABLE" ? "NCCL_IB_DISABLE" : "CLUSTAR_IB_DISABLE";
}

}  // namespace

Result<std::unique_ptr<io::PacketBackend>> OfiBackend::create(const Config& config, const Log& log) {
  const auto settings = config.get<OfiSettings>();
  const auto network = config.get<NetworkSettings>();
  auto interfaces = net::find_interfaces(network.interfaces, network.family());
  if (!interfaces) return tl::unexpected(interfaces.error());
  net::set_speed(*interfaces, network.line_mbps);
  const auto infos = find_infos(settings.progress, Service::kDatagrams);
  if (!infos) return tl::unexpected(infos.error());
  const auto choice = choose_datagrams(providers_of(*infos), settings.provider, rdma_forbidden_by(config));
  if (!choice) return tl::unexpected(choice.error());
  auto places = find_datagram_devices(*infos, choice->provider, *interfaces);
  if (!places) return tl::unexpected(places.error());
  log.info(fmt::format("ofi: packets over libfabric's {} ({}){}", choice->provider, choice->why,
                       choice->refused.empty() ? "" : fmt::format("; not {}", fmt::join(choice->refused, "; not "))));
  return std::unique_ptr<io::PacketBackend>(new OfiBackend(config, log, std::move(*places)));
}

Result<std::vector<io::DeviceInfo>> OfiBackend::devices() {
  std::vector<io::DeviceInfo> devices;
  for (const DatagramDevice& place : places_) {
    const net::Interface& interface = place.interface;
    const auto control = io::control_address(config_, interface.addresses.front().endpoint());
    if (!control) return tl::unexpected(control.error());
    devices.push_back({interface.name, interface.pci_path, interface.speed_mbps, *control});
  }
  return devices;
}

Result<std::unique_ptr<io::PacketIo>> OfiBackend::open(std::size_t device) {
  const DatagramDevice& place = places_.at(device);
  Info info(Library::get()->duplicate_info(place.info.get()));
  if (!info) return tl::unexpected(failure("libfabric", "fi_dupinfo", FI_ENOMEM));
  OfiIoOptions options{.paths = kPaths, .most_bytes = place.most_bytes, .link = place.link};
  options.apart = io::is_apart(config_);
  auto opened = OfiIo::open(std::move(info), options);
  if (!opened) return tl::unexpected(opened.error());
  const std::size_t room = (*opened)->socket_room();
  if (room > 0 && room < kEnoughRoom) {
    log_.info(
        fmt::format("ofi: sockets on {} hold {} bytes only: bursts will be lost, and sent again; sysctl "
                    "net.core.rmem_max=4194304 allows more",
                    place.interface.name, room));
  }
  return std::move(*opened);
}

}  // namespace clustar::transport::ofi
