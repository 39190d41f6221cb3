#include "libfabric_shim/provider/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "transport/base/config.h"
#include "transport/net/settings.h"

namespace clustar::libfabric_shim::provider {

namespace net = transport::net;

std::optional<net::Address> address_from(const void* address) {
  sa_family_t family = AF_UNSPEC;
  if (address != nullptr) std::memcpy(&family, &static_cast<const sockaddr*>(address)->sa_family, sizeof family);
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  return net::Address::of(static_cast<const sockaddr*>(address));
}

std::uint32_t format_of(const net::Address& address) { return address.ipv6() ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN; }

bool is_loopback(const net::Address& address) {
  const net::Endpoint endpoint = address.endpoint();
  if (!endpoint.ipv6) return endpoint.address[0] == std::byte{127};
  const bool zeroes = std::all_of(endpoint.address.begin(), endpoint.address.end() - 1,
                                  [](std::byte byte) { return byte == std::byte{0}; });
  return zeroes && endpoint.address[15] == std::byte{1};
}

bool is_any(const net::Address& address) {
  const net::Endpoint endpoint = address.endpoint();
  const std::size_t size = endpoint.ipv6 ? 16 : 4;
  return std::all_of(endpoint.address.begin(), endpoint.address.begin() + static_cast<std::ptrdiff_t>(size),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

Result<std::vector<net::Address>> resolve(const char* node, const char* service, bool numeric) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = (numeric ? AI_NUMERICHOST : 0) | (node == nullptr ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(node, service, &hints, &found);
  if (error != 0) {
    return fail(ErrorCode::kInvalidArgument, std::string(node == nullptr ? "this host" : node) + ":" +
                                                 (service == nullptr ? "" : service) + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<net::Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (const auto address = address_from(each->ai_addr)) addresses.push_back(*address);
  }
  return addresses;
}

// Unlike the transports, whose peers are told the port, an endpoint has the one that the program gave it.
Result<net::Socket> listen_at(const net::Address& address) {
  constexpr int kBacklog = 1024;
  net::Socket socket(::socket(address.raw()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A server that starts again has connections of its past in TIME_WAIT.
  const int on = 1;
  if (socket.fd() < 0 || ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.fd(), address.raw(), address.length()) != 0 || ::listen(socket.fd(), kBacklog) != 0) {
    return fail(ErrorCode::kSystem, "listen on " + address.to_string() + ": " + describe_errno(errno));
  }
  return socket;
}

Result<std::vector<Place>> places(const Config& config) {
  const auto settings = config.get<NetworkSettings>();
  auto interfaces = net::find_interfaces(settings.interfaces, settings.family());
  if (!interfaces) return tl::unexpected(interfaces.error());
  if (settings.interfaces.empty()) {
    auto loopback = net::find_interfaces("=lo", settings.family());
    const bool there =
        std::any_of(interfaces->begin(), interfaces->end(), [](const auto& i) { return i.name == "lo"; });
    if (loopback && !there) interfaces->insert(interfaces->end(), loopback->begin(), loopback->end());
  }
  std::vector<Place> all;
  for (const net::Interface& interface : *interfaces) {
    for (const net::Address& address : interface.addresses) all.push_back({interface.name, address});
  }
  return all;
}

}  // namespace clustar::libfabric_shim::provider
