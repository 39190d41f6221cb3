#include "transport/io/verbs/verbs_backend.h"

#include <fmt/format.h>

#include <utility>

#include "gdr/settings.h"
#include "transport/io/control_network.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/settings.h"
#include "transport/io/verbs/uc/uc_io.h"
#include "transport/net/settings.h"

namespace clustar::transport::io::verbs {
namespace {

// As many as over UDP: enough to spread over equal-cost routes.
constexpr std::uint8_t kPaths = 8;

Result<std::vector<GidEntry>> gids_of(const PortInfo& port) {
  const auto device = Device::open(port.device);
  if (!device) return tl::unexpected(device.error());
  return device->gids(port.port);
}

Result<DeviceMemory> memory_of(const Config& config, const RdmaPort& place) {
  const auto device = Device::open(place.device);
  if (!device) return tl::unexpected(device.error());
  const auto domain = ProtectionDomain::make(*device);
  if (!domain) return tl::unexpected(domain.error());
  const ProtectionDomain* const one = &*domain;
  const auto gdr = config.get<GdrSettings>();
  return find_device_memory(std::span(&one, 1), place.device, place.software,
                            {.offered = gdr.gdr != "off", .emulated = gdr.emulate});
}

}  // namespace

Result<RdmaPort> rdma_port_of(const Config& config, const net::Interface& interface) {
  const Gid wanted = gid_of(interface.addresses.front().endpoint());
  const std::string hca = config.get<IbSettings>().hca;
  const auto filter = HcaFilter::parse(hca);
  if (!filter) return tl::unexpected(filter.error());
  const auto ports = list_ports(*filter);
  if (!ports) return tl::unexpected(ports.error());
  std::string seen;
  for (const PortInfo& port : *ports) {
    seen += fmt::format("{}{} port {} ({}", seen.empty() ? "" : ", ", port.device, port.port,
                        port.problem.empty() ? port.state : port.problem);
    if (port.active && port.problem.empty()) {
      const auto table = gids_of(port);
      if (!table) seen += ", " + table.error().message;
      for (const GidEntry& entry : table.value_or(std::vector<GidEntry>{})) {
        if (entry.type != GidType::kRoceV2) continue;
        if (entry.gid == wanted) {
          return RdmaPort{port.device, static_cast<std::uint8_t>(port.port), static_cast<int>(entry.index),
                          port.pci_path.empty()};
        }
        seen += ", " + entry.gid.to_string();
      }
    }
    seen += ")";
  }
  const std::string which = hca.empty() ? "here" : fmt::format("that CLUSTAR_IB_HCA or NCCL_IB_HCA = '{}' allows", hca);
  return fail(ErrorCode::kUnavailable,
              fmt::format("mlt: no active RoCE v2 port has {}, the address of {}; RDMA ports {}: {}. Choose an "
                          "interface of one of them by CLUSTAR_SOCKET_IFNAME (control connections may have another: "
                          "CLUSTAR_CONTROL_IFNAME), or set CLUSTAR_IO=udp",
                          wanted.to_string(), interface.name, which, seen.empty() ? "none" : seen));
}

Result<std::unique_ptr<PacketBackend>> VerbsBackend::create(Kind kind, const Config& config, const Log& log) {
  const auto network = config.get<NetworkSettings>();
  auto interfaces = net::find_interfaces(network.interfaces, network.family());
  if (!interfaces) return tl::unexpected(interfaces.error());
  std::unique_ptr<VerbsBackend> made(new VerbsBackend(kind, config, log));
  Result<void> checked;
  for (net::Interface& interface : *interfaces) {
    auto port = rdma_port_of(config, interface);
    auto memory = port ? memory_of(config, *port) : Result<DeviceMemory>(tl::unexpected(port.error()));
    if (memory) {
      made->places_.push_back({std::move(interface), std::move(*port), std::move(*memory)});
    } else if (checked) {
      checked = tl::unexpected(memory.error());
    }
  }
  if (made->places_.empty()) return tl::unexpected(checked.error());
  return made;
}

FixedMarks VerbsBackend::marks() const {
  const auto ib = config_.get<IbSettings>();
  return {.traffic_class = ib.traffic_class, .service_level = ib.service_level};
}

UdOptions VerbsBackend::options_of(const Place& place) const {
  return {.device = place.port.device,
          .port = place.port.port,
          .gid = {.index = place.port.gid_index},
          .paths = kPaths,
          .marks = marks(),
          .access = kind_ == Kind::kUc ? uc::UcIo::kAccess : 0,
          .memory = place.memory,
          .force_flush = config_.get<IbSettings>().force_flush,
          .log = log_,
          .apart = is_apart(config_)};
}

Result<std::vector<DeviceInfo>> VerbsBackend::devices() {
  if (!devices_.empty()) return devices_;
  std::vector<DeviceInfo> devices;
  for (const Place& place : places_) {
    const net::Interface& interface = place.interface;
    const auto control = control_address(config_, interface.addresses.front().endpoint());
    if (!control) return tl::unexpected(control.error());
    Reach reach{place.memory.kinds, place.memory.text};
    if (place.memory.any()) {
      const auto tried = UdIo::open(options_of(place));
      reach = tried ? (*tried)->reach() : Reach{.why = "off: " + tried.error().message};
    }
    const std::string& apart = place.memory.data_direct_path;  // by which it is near its GPU
    devices.push_back(
        {interface.name, apart.empty() ? interface.pci_path : apart, interface.speed_mbps, *control, std::move(reach)});
  }
  devices_ = devices;
  return devices;
}

Result<std::unique_ptr<PacketIo>> VerbsBackend::open(std::size_t device) {
  const Place& place = places_.at(device);
  auto datagrams = UdIo::open(options_of(place));
  if (!datagrams) return tl::unexpected(datagrams.error());
  if (kind_ == Kind::kUd) return std::move(*datagrams);
  UdIo& ud = **datagrams;
  uc::UcOptions options{.port = place.port.port, .marks = marks()};
  options.warn = [log = log_](const std::string& text) { log.info(text); };
  auto opened = uc::UcIo::open(std::move(*datagrams), ud.device(), ud.domain(), ud.gid(), options);
  if (!opened) return tl::unexpected(opened.error());
  return std::move(*opened);
}

}  // namespace clustar::transport::io::verbs
