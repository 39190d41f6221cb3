#include "coflow/control/daemon/address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace clustar::coflow::control {
namespace {

struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
};

std::optional<HostAndPort> split(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostAndPort both{text.substr(0, colon), 0};
  const char* const begin = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(begin, end, both.port);
  if (error != std::errc() || read != end) return std::nullopt;
  const bool brackets = both.host.size() > 2 && both.host.front() == '[' && both.host.back() == ']';
  if (brackets) both.host = both.host.substr(1, both.host.size() - 2);
  if (!brackets && both.host.find(':') != std::string::npos) return std::nullopt;
  return both;
}

}  // namespace

Result<Tcp::endpoint> parse_endpoint(const std::string& text, const std::string& option) {
  const auto both = split(text);
  boost::system::error_code error;
  const auto address = both ? boost::asio::ip::make_address(both->host, error) : boost::asio::ip::address();
  if (!both || error) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: '{}' is no ADDRESS:PORT, as 127.0.0.1:7480, [::1]:7480 or 0.0.0.0:7480", option, text));
  }
  return Tcp::endpoint(address, both->port);
}

Result<std::vector<Tcp::endpoint>> resolve(const std::string& text, const std::string& option) {
  const auto both = split(text);
  if (!both || both->port == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: '{}' is no HOST:PORT, as coordinator-a:7480 or 10.0.0.1:7480", option, text));
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int status = getaddrinfo(both->host.c_str(), nullptr, &hints, &found); status != 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("{}: the host '{}' is not known: {}", option, both->host, gai_strerror(status)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<Tcp::endpoint> endpoints;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Tcp::endpoint endpoint;
    if ((one->ai_family != AF_INET && one->ai_family != AF_INET6) || one->ai_addrlen > endpoint.capacity()) continue;
    endpoint.resize(one->ai_addrlen);
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.port(both->port);
    endpoints.push_back(endpoint);
  }
  if (endpoints.empty()) return fail(ErrorCode::kSystem, fmt::format("{}: '{}' has no IP address", option, both->host));
  return endpoints;
}

std::string to_text(const Tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return fmt::format("{}:{}", endpoint.address().is_v6() ? "[" + host + "]" : host, endpoint.port());
}

std::string source_of(const boost::asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const auto v6 = address.to_v6();
  if (v6.is_v4_mapped()) return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6).to_string();
  auto bytes = v6.to_bytes();
  for (std::size_t i = 8; i < bytes.size(); ++i) bytes[i] = 0;
  return boost::asio::ip::address_v6(bytes).to_string();
}

}  // namespace clustar::coflow::control
