#include "libfabric_shim/dgram/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "libfabric_shim/failure.h"
#include "transport/net/socket.h"

namespace clustar::transport::ofi {
namespace {

std::string device_of(const fi_info& info) {
  const bool known = info.nic != nullptr && info.nic->device_attr != nullptr && info.nic->device_attr->name != nullptr;
  return known ? info.nic->device_attr->name : "";
}

// Which GID libfabric's verbs uses: FI_VERBS_GID_IDX, as libfabric read it.
int used_gid() {
  const Library& library = *Library::get();
  fi_param* params = nullptr;
  int count = 0;
  if (library.get_params(&params, &count) != 0) return 0;
  int gid = 0;
  for (int i = 0; i < count; ++i) {
    const char* const value = params[i].value;
    if (value == nullptr || std::string_view(params[i].name) != "FI_VERBS_GID_IDX") continue;
    std::from_chars(value, value + std::strlen(value), gid);
  }
  library.free_params(params);
  return gid;
}

// Of an IP datagram's payload.
std::size_t most_of(const std::string& sysfs, const net::Interface& interface) {
  std::ifstream file(sysfs + "/class/net/" + interface.name + "/mtu");
  std::size_t mtu = 0;
  const std::size_t around = interface.addresses.front().ipv6() ? 40 + 8 : 20 + 8;
  return file >> mtu && mtu > around ? mtu - around : 0;
}

std::optional<DatagramDevice> by_address(const fi_info& info, const net::Interface& interface,
                                         const std::string& sysfs) {
  const auto address = net::Address::of(static_cast<const sockaddr*>(info.src_addr));
  for (const net::Address& own : interface.addresses) {
    if (own.host() != address.host()) continue;
    DatagramDevice found{nullptr, interface, 0, {}};
    found.interface.addresses = {own};
    found.most_bytes = most_of(sysfs, found.interface);
    found.link =
        io::LinkProfile::usual(io::LinkKind::kKernel, interface.knows_speed() ? 8 * interface.bytes_per_second() : 0);
    return found;
  }
  return std::nullopt;
}

std::optional<DatagramDevice> by_port(const fi_info& info, const net::Interface& interface, const std::string& sysfs) {
  const std::string device = device_of(info);
  if (device.empty()) return std::nullopt;
  if (interface_of_gid(sysfs, device, used_gid()) != interface.name) return std::nullopt;
  std::error_code ignored;
  // RDMA in software is behind the kernel's network stack.
  const bool hardware = std::filesystem::exists(sysfs + "/class/infiniband/" + device + "/device", ignored);
  const bool tells = hardware && info.nic->link_attr != nullptr;
  return DatagramDevice{nullptr, interface, 0,
                        io::LinkProfile::usual(hardware ? io::LinkKind::kNic : io::LinkKind::kKernel,
                                               tells ? info.nic->link_attr->speed : 0)};
}

}  // namespace

std::string interface_of_gid(const std::string& sysfs, const std::string& device, int gid) {
  std::ifstream file(fmt::format("{}/class/infiniband/{}/ports/1/gid_attrs/ndevs/{}", sysfs, device, gid));
  std::string name;
  file >> name;
  return name;
}

Result<std::vector<DatagramDevice>> find_datagram_devices(const std::vector<Info>& infos, const std::string& provider,
                                                          const std::vector<net::Interface>& interfaces,
                                                          const std::string& sysfs) {
  std::vector<DatagramDevice> found;
  std::vector<std::string> refused;
  for (const net::Interface& interface : interfaces) {
    const fi_info* best = nullptr;
    std::optional<DatagramDevice> device;
    for (const Info& info : infos) {
      if (provider_of(*info) != provider) continue;
      const bool sockets = info->src_addr != nullptr && info->addr_format != FI_ADDR_IB_UD;
      auto fits = sockets ? by_address(*info, interface, sysfs) : by_port(*info, interface, sysfs);
      // The address that the interface prefers goes first.
      const bool first =
          fits && (!device || fits->interface.addresses.front().host() == interface.addresses.front().host());
      if (!first || (device && !sockets)) continue;
      device = std::move(fits);
      best = info.get();
    }
    if (best == nullptr) continue;
    if ((best->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0 && (best->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
      refused.push_back(name_of(*best) + " registers memory for single endpoints, which this version does not");
      continue;
    }
    device->info.reset(Library::get()->duplicate_info(best));
    if (!device->info) return tl::unexpected(failure("libfabric", "fi_dupinfo", FI_ENOMEM));
    found.push_back(std::move(*device));
  }
  if (!found.empty()) return found;
  for (const Info& info : infos) {
    if (refused.empty() && provider_of(*info) == provider) refused.push_back(name_of(*info));
  }
  std::vector<std::string> names;
  for (const net::Interface& interface : interfaces) names.push_back(interface.name);
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("libfabric's {} is on no interface that CLUSTAR_SOCKET_IFNAME and CLUSTAR_SOCKET_FAMILY allow "
                  "({}); it has {}",
                  provider, fmt::join(names, ", "), fmt::join(refused, "; ")));
}

}  // namespace clustar::transport::ofi
