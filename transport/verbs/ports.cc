#include "transport/verbs/ports.h"

#include <endian.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "transport/io/verbs/device.h"
#include "transport/io/verbs/hca_filter.h"

namespace clustar::transport::verbs {
namespace {

using io::verbs::Device;
using io::verbs::GidChoice;
using io::verbs::LinkLayer;
using io::verbs::PortInfo;

// The GID to use, or why the port has none.
Result<UsablePort> examine(const PortInfo& info, const io::verbs::GidWish& wish) {
  if (!info.problem.empty()) return fail(ErrorCode::kUnavailable, info.problem);
  const auto device = Device::open(info.device);
  if (!device) return tl::unexpected(device.error());
  const auto table = device->gids(info.port);
  if (!table) return tl::unexpected(table.error());
  // On InfiniBand the index that users set for RoCE means nothing.
  const GidChoice choice =
      io::verbs::choose_gid(*table, info.link_layer == LinkLayer::kInfiniBand ? io::verbs::GidWish{} : wish);
  if (!choice.chosen) return fail(ErrorCode::kUnavailable, choice.summary());
  return UsablePort{.info = info,
                    .gid = *choice.chosen,
                    .warning = choice.warning,
                    .chip_guid = be64toh(device->limits().sys_image_guid),
                    .max_queue_pairs = device->limits().max_qp};
}

}  // namespace

Result<PortSearch> search_ports(const Settings& settings) {
  const auto filter = io::verbs::HcaFilter::parse(settings.hca_filter);
  if (!filter) return tl::unexpected(filter.error());
  const auto ports = io::verbs::list_ports(*filter);
  if (!ports) return tl::unexpected(ports.error());
  PortSearch search;
  for (const PortInfo& info : *ports) {
    auto usable = examine(info, settings.gid);
    if (usable) {
      search.usable.push_back(std::move(*usable));
    } else {
      search.refused.push_back(info.port == 0
                                   ? fmt::format("{}: {}", info.device, usable.error().message)
                                   : fmt::format("{} port {}: {}", info.device, info.port, usable.error().message));
    }
  }
  return search;
}

std::string no_port_text(const Settings& settings, const std::vector<std::string>& refused) {
  if (!refused.empty()) return fmt::format("no RDMA port can be used ({})", fmt::join(refused, "; "));
  if (settings.hca_filter.empty()) return "this machine has no RDMA device: see rdma link";
  return fmt::format("no RDMA device matches CLUSTAR_IB_HCA or NCCL_IB_HCA = '{}': see rdma link", settings.hca_filter);
}

Result<std::vector<UsablePort>> usable_ports(const Settings& settings) {
  auto search = search_ports(settings);
  if (!search) return tl::unexpected(search.error());
  if (search->usable.empty()) return fail(ErrorCode::kUnavailable, no_port_text(settings, search->refused));
  return std::move(search->usable);
}

std::string chip_pci_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path physical = fs::canonical(path + "/physfn", ignored);
  std::string chip = ignored ? path : physical.string();
  const std::size_t dot = chip.rfind('.');
  if (dot == std::string::npos || dot + 2 != chip.size()) return path;
  chip.back() = '0';
  return fs::exists(chip, ignored) ? chip : path;
}

std::vector<DeviceProperties> device_properties(std::span<const UsablePort> ports) {
  std::vector<DeviceProperties> all;
  for (const UsablePort& port : ports) {
    DeviceProperties one;
    one.name = port.info.device;
    const auto same_device = [&](const UsablePort& other) { return other.info.device == port.info.device; };
    if (std::count_if(ports.begin(), ports.end(), same_device) > 1) one.name += fmt::format(":{}", port.info.port);
    if (!port.info.pci_path.empty()) one.pci_path = chip_pci_path(port.info.pci_path);
    const auto same_chip = [&](const DeviceProperties& other) {
      return !one.pci_path.empty() && other.pci_path == one.pci_path;
    };
    one.port = port.info.port + static_cast<int>(std::count_if(all.begin(), all.end(), same_chip));
    one.guid = port.chip_guid;
    one.speed_mbps = port.info.speed_mbps > 0 ? port.info.speed_mbps : 10000;
    one.max_channels = port.max_queue_pairs;
    one.memory_kinds = gdr::kHostOnly;
    one.global_registration = true;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace clustar::transport::verbs
