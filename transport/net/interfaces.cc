#include "transport/net/interfaces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace clustar::transport::net {
namespace {

bool usable(const ifaddrs& entry, Family family) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_RUNNING) == 0)
    return false;
  if (entry.ifa_addr->sa_family == AF_INET) return family != Family::kIpv6;
  if (entry.ifa_addr->sa_family != AF_INET6 || family == Family::kIpv4) return false;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

// Every interface with a usable address, in the kernel's order, IPv4 before IPv6.
Result<std::vector<Interface>> all_interfaces(Family family, const std::string& sysfs) {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return fail(ErrorCode::kSystem, "getifaddrs: " + describe_errno(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, &freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (!usable(*entry, family)) continue;
    auto known =
        std::find_if(found.begin(), found.end(), [&](const Interface& i) { return i.name == entry->ifa_name; });
    if (known == found.end()) known = found.insert(found.end(), Interface{entry->ifa_name, {}, 0, {}});
    known->addresses.push_back(Address::of(entry->ifa_addr).with_port(0));
  }
  for (Interface& interface : found) {
    std::stable_partition(interface.addresses.begin(), interface.addresses.end(),
                          [](const Address& address) { return !address.ipv6(); });
    if (interface.addresses.size() > kMaxAddresses) interface.addresses.resize(kMaxAddresses);
    const int told_mbps = interface_speed(sysfs, interface.name);
    interface.speed_is_told = told_mbps > 0;
    interface.speed_mbps = interface.speed_is_told ? told_mbps : kUnknownMbps;
    interface.pci_path = interface_pci_path(sysfs, interface.name);
  }
  return found;
}

std::vector<Interface> matching(const std::vector<Interface>& all, const InterfaceFilter& filter) {
  std::vector<Interface> kept;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept),
               [&](const Interface& interface) { return filter.matches(interface.name); });
  return kept;
}

}  // namespace

InterfaceFilter::InterfaceFilter(std::string_view text) {
  if (text.starts_with('^')) {
    exclude_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    exact_ = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names_.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

bool InterfaceFilter::matches(std::string_view name) const {
  if (names_.empty()) return true;
  const bool listed = std::any_of(names_.begin(), names_.end(), [&](const std::string& wanted) {
    return exact_ ? name == wanted : name.starts_with(wanted);
  });
  return listed != exclude_;
}

void set_speed(std::vector<Interface>& interfaces, int line_mbps) {
  if (line_mbps == 0) return;
  for (Interface& interface : interfaces) {
    interface.speed_mbps = line_mbps;
    interface.speed_is_set = true;
  }
}

Result<std::vector<Interface>> find_interfaces(const std::string& filter, Family family, const std::string& sysfs) {
  const auto all = all_interfaces(family, sysfs);
  if (!all) return all;
  if (!filter.empty()) {
    auto chosen = matching(*all, InterfaceFilter(filter));
    if (!chosen.empty()) return chosen;
    std::vector<std::string> names;
    for (const Interface& interface : *all) names.push_back(interface.name);
    return fail(ErrorCode::kUnavailable,
                fmt::format("no usable network interface matches '{}' (CLUSTAR_SOCKET_IFNAME or NCCL_SOCKET_IFNAME); "
                            "up and with an address: {}",
                            filter, fmt::join(names, ", ")));
  }
  for (const char* fallback : {"ib", "^lo,docker", "docker", "lo"}) {
    auto chosen = matching(*all, InterfaceFilter(fallback));
    if (!chosen.empty()) return chosen;
  }
  return fail(ErrorCode::kUnavailable, "no network interface is up and has an address");
}

int interface_speed(const std::string& sysfs, const std::string& name) {
  std::ifstream in(sysfs + "/class/net/" + name + "/speed");
  int speed = 0;
  return in >> speed && speed > 0 ? speed : 0;
}

std::string interface_pci_path(const std::string& sysfs, const std::string& name) {
  const std::string device = sysfs + "/class/net/" + name + "/device";
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(device.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : std::string();
}

}  // namespace clustar::transport::net
