#include "bench/perf/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/proxy/socket_io.h"

namespace clustar::bench::perf {
namespace {

struct ListFree {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

ifreq request_for(const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

std::optional<bool> feature(int fd, const std::string& name, std::uint32_t command) {
  ethtool_value value{};
  value.cmd = command;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&value);
  if (ioctl(fd, SIOCETHTOOL, &request) != 0) return std::nullopt;
  return value.data != 0;
}

}  // namespace

Interface interface_of(const std::string& address) {
  Interface found;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return found;
  const std::unique_ptr<ifaddrs, ListFree> list(raw);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (text_of(entry->ifa_addr) != address) continue;
    found.name = entry->ifa_name;
    found.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    break;
  }
  const FileDescriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (found.name.empty() || !fd) return found;
  ifreq request = request_for(found.name);
  if (ioctl(fd.fd(), SIOCGIFMTU, &request) == 0) found.mtu = request.ifr_mtu;
  const auto tso = feature(fd.fd(), found.name, ETHTOOL_GTSO);
  const auto gso = feature(fd.fd(), found.name, ETHTOOL_GGSO);
  const auto gro = feature(fd.fd(), found.name, ETHTOOL_GGRO);
  found.known = tso && gso && gro;
  found.tso = tso.value_or(false);
  found.gso = gso.value_or(false);
  found.gro = gro.value_or(false);
  return found;
}

std::string offload_mode(const Interface& interface) {
  if (interface.loopback) return "loopback";
  if (!interface.known) return "unknown";
  return interface.tso || interface.gso ? "offloads on" : "segmented";
}

nlohmann::json to_json(const Interface& interface) {
  nlohmann::json features;
  if (interface.known) features = {{"tso", interface.tso}, {"gso", interface.gso}, {"gro", interface.gro}};
  return {{"name", interface.name}, {"mtu", interface.mtu}, {"offloads", features}, {"mode", offload_mode(interface)}};
}

}  // namespace clustar::bench::perf
