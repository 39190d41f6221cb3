// Addresses of endpoints: those of sockets, as programs give them and as people write them.
#pragma once

#include <rdma/fabric.h>

#include <optional>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/result.h"
#include "transport/net/interfaces.h"
#include "transport/net/socket.h"

namespace clustar::libfabric_shim::provider {

// Nothing: neither IPv4 nor IPv6.
std::optional<transport::net::Address> address_from(const void* address);
std::uint32_t format_of(const transport::net::Address& address);
bool is_loopback(const transport::net::Address& address);
bool is_any(const transport::net::Address& address);
// `node` null: this host, any address. Error: no such host or service.
Result<std::vector<transport::net::Address>> resolve(const char* node, const char* service, bool numeric);

// A socket that listens at this address, whose port the kernel chooses if it is 0. Error: it is in use, or not this
// host's.
Result<transport::net::Socket> listen_at(const transport::net::Address& address);

// A place where endpoints can be: an address of an interface.
struct Place {
  std::string interface;
  transport::net::Address address;
};
// By our settings, and then loopback, where it is not among them and no setting chooses interfaces.
Result<std::vector<Place>> places(const Config& config);

}  // namespace clustar::libfabric_shim::provider
