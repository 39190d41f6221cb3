#include "mlt/driver/verbs_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "gdr/core/ranked.h"
#include "gdr/topology/read_machine.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/dmabuf_probe.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::mlt::driver {
namespace {

namespace verbs = transport::io::verbs;

// As many as over UDP: enough to spread over equal-cost routes.
constexpr std::uint8_t kPaths = 8;
static_assert(kPaths <= kMaxPorts);

Result<std::vector<verbs::GidEntry>> gids_of(const verbs::PortInfo& port) {
  const auto device = verbs::Device::open(port.device);
  if (!device) return tl::unexpected(device.error());
  return device->gids(port.port);
}

verbs::UdOptions ud_options(const Config& config, const RdmaPort& place, const Reach& reach) {
  return {.device = place.device,
          .port = place.port,
          .gid = {.index = place.gid_index},
          .paths = kPaths,
          .device_memory = reach.kinds != gdr::kHostOnly,
          .emulate = config.gdr_emulate};
}

}  // namespace

transport::io::verbs::Gid gid_of(const net::Address& address) {
  const net::Endpoint endpoint = address.endpoint();
  verbs::Gid gid;
  const std::size_t length = endpoint.ipv6 ? 16 : 4;
  const std::size_t at = gid.bytes.size() - length;
  if (!endpoint.ipv6) gid.bytes[10] = gid.bytes[11] = 0xff;
  for (std::size_t i = 0; i < length; ++i) gid.bytes[at + i] = std::to_integer<std::uint8_t>(endpoint.address[i]);
  return gid;
}

Result<RdmaPort> rdma_port_of(const Config& config, const net::Interface& interface, const net::Address& local) {
  const verbs::Gid wanted = gid_of(local);
  const auto filter = verbs::HcaFilter::parse(config.ib_hca);
  if (!filter) return tl::unexpected(filter.error());
  const auto ports = verbs::list_ports(*filter);
  if (!ports) return tl::unexpected(ports.error());
  std::string seen;
  for (const verbs::PortInfo& port : *ports) {
    seen += fmt::format("{}{} port {} ({}", seen.empty() ? "" : ", ", port.device, port.port,
                        port.problem.empty() ? port.state : port.problem);
    if (port.active && port.problem.empty()) {
      const auto table = gids_of(port);
      if (!table) seen += ", " + table.error().message;
      for (const verbs::GidEntry& entry : table.value_or(std::vector<verbs::GidEntry>{})) {
        if (entry.type != verbs::GidType::kRoceV2) continue;
        if (entry.gid == wanted) {
          return RdmaPort{port.device, static_cast<std::uint8_t>(port.port), static_cast<int>(entry.index),
                          port.pci_path.empty()};
        }
        seen += ", " + entry.gid.to_string();
      }
    }
    seen += ")";
  }
  const std::string which =
      config.ib_hca.empty() ? "here" : fmt::format("that CLUSTAR_IB_HCA or NCCL_IB_HCA = '{}' allows", config.ib_hca);
  return fail(ErrorCode::kUnavailable,
              fmt::format("mlt: no active RoCE v2 port has {}, the address of {}; RDMA ports {}: {}. Choose an "
                          "interface of one of them by CLUSTAR_SOCKET_IFNAME, or set CLUSTAR_IO=udp",
                          wanted.to_string(), interface.name, which, seen.empty() ? "none" : seen));
}

Reach reach_of(const Config& config, const RdmaPort& place) {
  gdr::WayFacts facts;
  facts.nic = place.device;
  facts.offered = config.gdr != "off";
  facts.emulated = config.gdr_emulate;
  facts.software = place.software;
  if (facts.offered && !facts.emulated) {
    facts.peermem = gdr::peermem_file();
    const auto probe = verbs::probe_dma_buf(place.device);
    facts.dma_buf = probe && probe->supported ? gdr::Known::kYes : gdr::Known::kNo;
    facts.dma_buf_evidence = probe ? probe->text : probe.error().message;
    facts.data_direct = gdr::Known::kNo;
    facts.data_direct_evidence = "MLT registers dma-bufs without it";
  }
  const std::uint32_t kinds = gdr::offered_kinds(facts);
  const bool any = kinds != gdr::kHostOnly;
  return {kinds, gdr::describe_ways(facts), any && (facts.emulated || config.ib_force_flush)};
}

Reach find_verbs_reach(const Config& config, const net::Interface& interface, const net::Address& local) {
  const auto place = rdma_port_of(config, interface, local);
  if (!place) return {gdr::kHostOnly, "off: " + place.error().message};
  const Reach reach = reach_of(config, *place);
  if (reach.kinds == gdr::kHostOnly) return reach;
  // NCCL registers what it is told now, so the writer is tried before.
  const auto tried = verbs::UdIo::open(ud_options(config, *place, reach));
  if (!tried) return {gdr::kHostOnly, "off: " + tried.error().message};
  return reach_with(reach, **tried);
}

Reach reach_with(const Reach& reach, const transport::io::verbs::UdIo& io) {
  if (io.writer_problem().empty()) return reach;
  return {gdr::kHostOnly,
          "off: " + io.device().name() + " cannot be connected to itself, as GPU memory needs: " + io.writer_problem()};
}

Result<Device> open_verbs_ud_device(const Config& config, const net::Interface& interface, const net::Address& local) {
  const auto place = rdma_port_of(config, interface, local);
  if (!place) return tl::unexpected(place.error());
  const Reach reach = reach_of(config, *place);
  auto opened = verbs::UdIo::open(ud_options(config, *place, reach));
  if (!opened) return tl::unexpected(opened.error());
  verbs::UdIo* io = opened->get();
  Device device;
  device.reach = reach_with(reach, *io);
  device.datapath = Datapath::kVerbsUd;
  device.ports.count = kPaths;
  device.ports.key = io->local().q_key;
  std::copy_n(io->local().queue_pairs.begin(), kPaths, device.ports.port.begin());
  device.add_peer = [io](const net::Address& host, const Ports& ports) {
    return io->add_peer({gid_of(host), ports.key, {ports.all().begin(), ports.all().end()}});
  };
  device.remove_peer = [io](transport::io::PeerId peer) { static_cast<void>(io->remove_peer(peer)); };
  device.describe = [io] { return io->describe(); };
  device.readable_fds = io->readable_fds();
  device.before_sleep = [io] { return io->arm().value_or(Duration(0)); };
  device.io = std::move(*opened);
  return device;
}

}  // namespace clustar::mlt::driver
