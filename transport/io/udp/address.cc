#include "transport/io/udp/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>

#include "transport/base/file_descriptor.h"

namespace clustar::transport::io::udp {
namespace {

IpAddress address_of(const sockaddr& from) {
  IpAddress ip;
  ip.ipv6 = from.sa_family == AF_INET6;
  if (ip.ipv6) {
    std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, 16);
  } else {
    std::memcpy(ip.bytes.data(), &reinterpret_cast<const sockaddr_in&>(from).sin_addr, 4);
  }
  return ip;
}

// `visit` returns true to stop. False: the interfaces could not be listed.
bool for_each_address(const std::function<bool(const ifaddrs&, const IpAddress&)>& visit) {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, &freeifaddrs);
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (visit(*entry, address_of(*entry->ifa_addr))) break;
  }
  return true;
}

bool link_local(const IpAddress& ip) { return ip.ipv6 && ip.bytes[0] == 0xfe && (ip.bytes[1] & 0xc0) == 0x80; }

}  // namespace

Result<IpAddress> IpAddress::parse(const std::string& text) {
  IpAddress ip;
  if (inet_pton(AF_INET, text.c_str(), ip.bytes.data()) == 1) return ip;
  ip.ipv6 = true;
  if (inet_pton(AF_INET6, text.c_str(), ip.bytes.data()) == 1) return ip;
  return fail(ErrorCode::kInvalidArgument, "'" + text + "' is neither an IPv4 nor an IPv6 address");
}

std::string IpAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(ipv6 ? AF_INET6 : AF_INET, bytes.data(), text, sizeof text);
  return text;
}

IpAddress ip_of(const net::Endpoint& endpoint) {
  IpAddress ip;
  ip.ipv6 = endpoint.ipv6;
  std::transform(endpoint.address.begin(), endpoint.address.begin() + (ip.ipv6 ? 16 : 4), ip.bytes.begin(),
                 [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return ip;
}

net::Endpoint endpoint_of(const IpAddress& ip) {
  net::Endpoint endpoint;
  endpoint.ipv6 = ip.ipv6;
  std::ranges::transform(ip.bytes, endpoint.address.begin(), [](std::uint8_t byte) { return std::byte{byte}; });
  return endpoint;
}

Result<UdpBlob> UdpBlob::parse(const AddressBlob& blob) {
  const auto bytes = blob.bytes();
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint8_t>(bytes[i]); };
  const std::uint8_t family = bytes.size() < 2 ? 255 : at(0);
  const std::size_t count = bytes.size() < 2 ? 0 : at(1);
  const std::size_t host = family == 6 ? 16 : family;
  if ((family != 0 && family != 4 && family != 6) || count == 0 || bytes.size() != 2 + 2 * count + host) {
    return fail(ErrorCode::kRemote, "udp: the peer's address is damaged: " + std::to_string(bytes.size()) + " bytes");
  }
  UdpBlob parsed;
  for (std::size_t i = 0; i < count; ++i) {
    parsed.ports.push_back(static_cast<std::uint16_t>(at(2 + 2 * i) << 8 | at(3 + 2 * i)));
  }
  if (family == 0) return parsed;
  parsed.ip.emplace().ipv6 = family == 6;
  for (std::size_t i = 0; i < host; ++i) parsed.ip->bytes[i] = at(2 + 2 * count + i);
  return parsed;
}

AddressBlob UdpBlob::serialize() const {
  std::vector<std::byte> bytes{ip ? std::byte(ip->ipv6 ? 6 : 4) : std::byte{0}, static_cast<std::byte>(ports.size())};
  for (const std::uint16_t port : ports) {
    bytes.push_back(static_cast<std::byte>(port >> 8));
    bytes.push_back(static_cast<std::byte>(port));
  }
  for (std::size_t i = 0; ip && i < (ip->ipv6 ? 16u : 4u); ++i) bytes.push_back(std::byte{ip->bytes[i]});
  return AddressBlob::of(bytes).value();
}

SocketAddress::SocketAddress(const IpAddress& ip, std::uint16_t port) {
  if (ip.ipv6) {
    storage_.in6.sin6_family = AF_INET6;
    storage_.in6.sin6_port = htons(port);
    std::memcpy(&storage_.in6.sin6_addr, ip.bytes.data(), 16);
  } else {
    storage_.in4.sin_family = AF_INET;
    storage_.in4.sin_port = htons(port);
    std::memcpy(&storage_.in4.sin_addr, ip.bytes.data(), 4);
  }
}

IpAddress SocketAddress::ip() const { return address_of(storage_.any); }

std::uint16_t SocketAddress::port() const { return ntohs(ipv6() ? storage_.in6.sin6_port : storage_.in4.sin_port); }

Result<IpAddress> resolve_local(const std::string& local) {
  if (const auto ip = IpAddress::parse(local)) {
    // The source address is how a peer knows us, so it must be one; and a link-local one needs a scope.
    if (ip->is_any()) return fail(ErrorCode::kInvalidArgument, "udp: " + local + " is not an address of one interface");
    if (link_local(*ip)) return fail(ErrorCode::kInvalidArgument, "udp: link-local addresses are not supported");
    return *ip;
  }
  IpAddress found;
  bool any = false;
  const bool listed = for_each_address([&](const ifaddrs& entry, const IpAddress& ip) {
    if (local != entry.ifa_name || (entry.ifa_flags & IFF_UP) == 0 || link_local(ip)) return false;
    if (!any) found = ip;
    any = true;
    if (!ip.ipv6) found = ip;
    return !ip.ipv6;
  });
  if (!listed) return fail(ErrorCode::kSystem, "getifaddrs: " + describe_errno(errno));
  if (!any) {
    return fail(ErrorCode::kUnavailable,
                "udp: '" + local + "' is neither an address nor an interface that is up and has one");
  }
  return found;
}

std::string interface_of(const IpAddress& wanted) {
  std::string name;
  for_each_address([&](const ifaddrs& entry, const IpAddress& ip) {
    if (ip == wanted) name = entry.ifa_name;
    return !name.empty();
  });
  return name;
}

}  // namespace clustar::transport::io::udp
