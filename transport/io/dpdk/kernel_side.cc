#include "transport/io/dpdk/kernel_side.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

namespace clustar::transport::io::dpdk {
namespace {

Ipv4 ipv4_of(const sockaddr* address) { return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr); }

// `visit` returns true to stop.
void for_each_ipv4(const std::function<bool(const ifaddrs&)>& visit) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(head, &::freeifaddrs);
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    const bool ipv4 = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET;
    if (ipv4 && visit(*entry)) return;
  }
}

}  // namespace

std::optional<Ipv4> default_gateway(const std::string& table, const std::string& interface) {
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // names of the columns
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint32_t to = 0;
    std::uint32_t by = 0;
    if (!(words >> name >> std::hex >> to >> by) || name != interface || to != 0 || by == 0) continue;
    return ntohl(by);  // the table has them in network order, as numbers of this machine
  }
  return std::nullopt;
}

Result<Subnet> subnet_of_interface(const std::string& name) {
  std::optional<Subnet> found;
  for_each_ipv4([&](const ifaddrs& entry) {
    if (name != entry.ifa_name || (entry.ifa_flags & IFF_UP) == 0 || entry.ifa_netmask == nullptr) return false;
    const int prefix = std::popcount(ipv4_of(entry.ifa_netmask));
    if (prefix < 1 || prefix > 31) return false;
    found = Subnet{ipv4_of(entry.ifa_addr), static_cast<std::uint8_t>(prefix), {}};
    return true;
  });
  if (!found) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: '{}' is no interface that is up and has an IPv4 address; give the device one in "
                            "CLUSTAR_DPDK_DEVICES (@ADDRESS/PREFIX)",
                            name));
  }
  std::ifstream file("/proc/net/route");
  const std::string table((std::istreambuf_iterator<char>(file)), {});
  const auto gateway = default_gateway(table, name);
  if (gateway && found->contains(*gateway)) found->gateway = gateway;
  return *found;
}

bool kernel_has(Ipv4 address) {
  bool has = false;
  for_each_ipv4([&](const ifaddrs& entry) { return has = ipv4_of(entry.ifa_addr) == address; });
  return has;
}

Result<FileDescriptor> hear_arp_on(const std::string& interface) {
  FileDescriptor socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  sockaddr_ll from{};
  from.sll_family = AF_PACKET;
  from.sll_protocol = htons(ETH_P_ARP);
  from.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (!socket || ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: no socket for {}'s ARP packets: {}", interface, describe_errno(errno)));
  }
  return socket;
}

std::vector<int> sockets_of(int family) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    int domain = 0;
    socklen_t length = sizeof domain;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == family) found.push_back(fd);
  }
  return found;
}

Result<HeldPorts> HeldPorts::hold(Ipv4 address, std::uint16_t first, std::uint8_t count, std::uint32_t mark) {
  HeldPorts held;
  for (unsigned k = 0; k < count; ++k) {
    FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_port = htons(static_cast<std::uint16_t>(first + k));
    local.sin_addr.s_addr = htonl(address);
    const int least = 1;
    const bool bound = socket.fd() >= 0 &&
                       ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0 &&
                       (mark == 0 || ::setsockopt(socket.fd(), SOL_SOCKET, SO_MARK, &mark, sizeof mark) == 0) &&
                       ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0;
    if (!bound) {
      return fail(ErrorCode::kUnavailable, fmt::format("dpdk: port {} of {} cannot be had: {}", first + k,
                                                       to_text(address), describe_errno(errno)));
    }
    held.sockets_.push_back(std::move(socket));
  }
  return held;
}

}  // namespace clustar::transport::io::dpdk
