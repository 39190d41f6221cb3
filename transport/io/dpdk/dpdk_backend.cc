#include "transport/io/dpdk/dpdk_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "transport/io/control_network.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/ethernet_device.h"
#include "transport/io/dpdk/host.h"
#include "transport/io/dpdk/huge_pages.h"
#include "transport/io/dpdk/kernel_side.h"
#include "transport/io/dpdk/settings.h"
#include "transport/net/interfaces.h"
#include "transport/net/settings.h"

namespace clustar::transport::io::dpdk {
namespace {

// As many as over kernel UDP, whose ends may be peers.
constexpr std::uint8_t kPaths = 8;
constexpr std::uint32_t kLeastMtu = 576;

bool wants_huge_pages(const DpdkSettings& settings) {
  if (settings.huge_pages != "auto") return settings.huge_pages == "yes";
  return free_huge_pages_mb() >= settings.memory_mb;
}

net::Endpoint endpoint_of(Ipv4 ip) {
  net::Endpoint endpoint;
  for (std::size_t i = 0; i < 4; ++i) endpoint.address[i] = static_cast<std::byte>(ip >> (24 - 8 * i));
  return endpoint;
}

// In the form that sysfs has, with the bus's domain.
std::string pci_path_of(const DeviceSpec& spec) {
  if (!spec.pci) return {};
  const std::string full = spec.name.size() == 7 ? "0000:" + spec.name : spec.name;
  std::error_code ignored;
  return std::filesystem::canonical("/sys/bus/pci/devices/" + full, ignored).string();
}

// A virtual device's packets pass the kernel or another process. Where no descriptor tells of them, a thread that
// sleeps looks four times as often as on a socket's times.
LinkProfile link_of(const EthernetDevice& device, const NetworkSettings& network) {
  const std::uint64_t set = static_cast<std::uint64_t>(network.line_mbps) * 1'000'000;
  const std::uint64_t rate = set != 0 ? set : device.line_rate_bps();
  LinkProfile link = LinkProfile::usual(device.is_virtual() ? LinkKind::kKernel : LinkKind::kPollMode, rate);
  if (device.is_virtual() && device.ready_fds().empty()) link.wake_cost /= 4;
  return link;
}

}  // namespace

Result<std::unique_ptr<PacketBackend>> DpdkBackend::create(const Config& config, const Log& log) {
  const auto settings = config.get<DpdkSettings>();
  auto specs = parse_devices(settings.devices);
  if (!specs) return fail(specs.error().code, "CLUSTAR_DPDK_DEVICES: " + specs.error().message);
  if (settings.mtu != 0 && settings.mtu < kLeastMtu) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("CLUSTAR_DPDK_MTU={}: allowed is 0, or {} to 9216", settings.mtu, kLeastMtu));
  }
  EalOptions options{wants_huge_pages(settings), settings.memory_mb, {}};
  for (DeviceSpec& spec : *specs) {
    if (spec.pci) options.pci.push_back(spec.whole());
    if (spec.subnet) continue;
    const auto subnet = subnet_of_interface(spec.argument("iface").value_or(""));
    if (!subnet) return tl::unexpected(subnet.error());
    spec.subnet = *subnet;
  }
  std::unique_ptr<DpdkBackend> backend(new DpdkBackend(config, log, std::move(*specs)));
  if (const auto begun = start_eal(options); !begun) return tl::unexpected(begun.error());
  // Says now what would otherwise fail with the first connection.
  if (const auto listed = backend->devices(); !listed) return tl::unexpected(listed.error());
  return backend;
}

Result<std::vector<DeviceInfo>> DpdkBackend::devices() {
  std::vector<DeviceInfo> devices;
  const auto network = config_.get<NetworkSettings>();
  for (const DeviceSpec& spec : specs_) {
    const Ipv4 address = spec.subnet->address;
    if (!is_apart(config_) && !kernel_has(address)) {
      return fail(ErrorCode::kInvalidUsage,
                  fmt::format("dpdk: the kernel of this host does not have {}, so control connections need an address "
                              "of their own: set CLUSTAR_CONTROL_IFNAME on all ranks",
                              to_text(address)));
    }
    const auto control = control_address(config_, endpoint_of(address));
    if (!control) return tl::unexpected(control.error());
    const int told = network.line_mbps != 0 ? network.line_mbps : speed_of(spec);
    devices.push_back({spec.name, pci_path_of(spec), told != 0 ? told : net::kUnknownMbps, *control});
  }
  return devices;
}

Result<std::unique_ptr<PacketIo>> DpdkBackend::open(std::size_t device) {
  const DeviceSpec& spec = specs_.at(device);
  const auto settings = config_.get<DpdkSettings>();
  auto host = Host::open(spec, *spec.subnet, {settings.mtu, settings.descriptors, settings.held, settings.queues});
  if (!host) return tl::unexpected(host.error());
  const LinkProfile link = link_of((*host)->device(), config_.get<NetworkSettings>());
  log_.info(fmt::format("dpdk: {} on {}", to_text(spec.subnet->address), (*host)->device().describe()));
  auto opened = DpdkIo::open(std::move(*host), {kPaths, settings.held, link, is_apart(config_)});
  if (!opened) return tl::unexpected(opened.error());
  return std::move(*opened);
}

}  // namespace clustar::transport::io::dpdk
