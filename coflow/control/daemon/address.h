// Addresses as options have them.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::coflow::control {

using Tcp = boost::asio::ip::tcp;

// "127.0.0.1:7480", "[::1]:0". `option` is for the error.
Result<Tcp::endpoint> parse_endpoint(const std::string& text, const std::string& option);
// "HOST:PORT", by getaddrinfo: it may take as long as the host's resolver does.
Result<std::vector<Tcp::endpoint>> resolve(const std::string& text, const std::string& option);
std::string to_text(const Tcp::endpoint& endpoint);

// Alike for all that one sender can call its own: an IPv4 address, the /64 of an IPv6 one.
std::string source_of(const boost::asio::ip::address& address);

}  // namespace clustar::coflow::control
