#include "libfabric_shim/rdm/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "transport/net/socket.h"

namespace clustar::transport::ofi {
namespace {

constexpr std::size_t kMostChannels = 65536;

std::string domain_of(const fi_info& info) { return info.domain_attr->name == nullptr ? "?" : info.domain_attr->name; }

bool has_host_address(const fi_info& info) {
  const bool format =
      info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6;
  return format && info.src_addr != nullptr;
}

// Why it cannot be used; empty: it can.
std::string fault_of(const fi_info& info) {
  if ((info.domain_attr->mr_mode & FI_MR_ENDPOINT) != 0 && (info.domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    return "registers memory for single endpoints (FI_MR_ENDPOINT with FI_MR_LOCAL), which this version does not";
  }
  // Beside an IP address of the same port, or of one without any; libfabric 1.17 cannot open a domain by it.
  if (info.addr_format == FI_SOCKADDR_IB) {
    return "has InfiniBand's own address only (FI_SOCKADDR_IB), and connections need an IP address of that port";
  }
  const std::uint64_t format = info.ep_attr->mem_tag_format;
  if (format != 0 && (kTagBits & ~(~std::uint64_t{0} >> __builtin_clzll(format))) != 0) {
    return "has fewer than 48 bits in a tag";
  }
  if (info.ep_attr->max_msg_size < (1u << 20)) return "has messages of less than 1 MiB only";
  return "";
}

DeviceProperties describe(const fi_info& info, const std::string& name, const net::Interface& control) {
  DeviceProperties properties;
  properties.name = name;
  properties.pci_path = has_host_address(info) ? control.pci_path : "";
  properties.speed_mbps = control.speed_mbps;
  if (info.nic != nullptr) {
    if (info.nic->link_attr != nullptr && info.nic->link_attr->speed > 0) {
      properties.speed_mbps = static_cast<int>(info.nic->link_attr->speed / 1'000'000);
    }
    if (info.nic->bus_attr != nullptr && info.nic->bus_attr->bus_type == FI_BUS_PCI) {
      const auto& pci = info.nic->bus_attr->attr.pci;
      properties.pci_path = fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id,
                                        pci.device_id, pci.function_id);
    }
  }
  // All channels share an endpoint.
  properties.max_channels = kMostChannels;
  properties.max_recv_parts = kMaxRecvParts;
  properties.memory_kinds = gdr::kHostOnly;
  // A provider promises no order within a line.
  properties.ordered_lines = false;
  return properties;
}

// The interface that has the address from which the endpoint sends.
const net::Interface* interface_of(const fi_info& info, const std::vector<net::Interface>& interfaces) {
  const auto address = net::Address::of(static_cast<const sockaddr*>(info.src_addr));
  for (const net::Interface& interface : interfaces) {
    for (const net::Address& own : interface.addresses) {
      if (own.host() == address.host()) return &interface;
    }
  }
  return nullptr;
}

// Rails have to have the same numbers on all hosts: the interfaces' order is the kernel's, libfabric's may be any.
void order(std::vector<Found>& found, const std::vector<net::Interface>& interfaces) {
  if (has_host_address(*found.front().info)) {
    std::ranges::sort(found, {}, [&](const Found& one) {
      return std::ranges::find(interfaces, one.name, &net::Interface::name) - interfaces.begin();
    });
  }
  for (std::size_t i = 0; i < found.size(); ++i) found[i].properties.guid = i;
}

}  // namespace

Result<std::vector<Found>> find_devices(std::vector<Info> infos, const std::string& provider,
                                        const Settings& settings) {
  auto interfaces = net::find_interfaces(settings.interface_filter, settings.family);
  if (!interfaces) return tl::unexpected(interfaces.error());
  net::set_speed(*interfaces, settings.line_mbps);
  std::vector<Found> found;
  std::vector<std::string> refused;
  const auto refuse = [&](const std::string& domain, const std::string& why) {
    const std::string text = domain + " " + why;
    if (std::ranges::find(refused, text) == refused.end()) refused.push_back(text);
  };
  for (Info& info : infos) {
    if (provider_of(*info) != provider) continue;
    const std::string domain = domain_of(*info);
    if (const std::string fault = fault_of(*info); !fault.empty()) {
      refuse(domain, fault);
      continue;
    }
    const bool by_interface = has_host_address(*info);
    const net::Interface* const control = by_interface ? interface_of(*info, *interfaces) : &interfaces->front();
    if (control == nullptr) {
      refuse(domain, "is on no interface that CLUSTAR_SOCKET_IFNAME and CLUSTAR_SOCKET_FAMILY allow");
      continue;
    }
    const std::string name = by_interface ? control->name : domain;
    if (std::ranges::any_of(found, [&](const Found& one) { return one.name == name; })) continue;
    DeviceProperties properties = describe(*info, name, *control);
    found.push_back({std::move(info), name, *control, std::move(properties)});
  }
  if (!found.empty()) {
    order(found, *interfaces);
    return found;
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("{} has no domain that can be used ({})", provider, fmt::join(refused, "; ")));
}

}  // namespace clustar::transport::ofi
