#include "transport/io/control_network.h"

#include <fmt/format.h>

#include "transport/net/interfaces.h"
#include "transport/net/settings.h"

namespace clustar::transport::io {

Result<net::Endpoint> control_address(const Config& config, const net::Endpoint& data) {
  if (!is_apart(config)) return data;
  // Either family: control and data need not agree.
  const std::string wanted = config.get<NetworkSettings>().control_interfaces;
  auto found = net::find_interfaces(wanted, net::Family::kAny);
  if (!found) {
    return fail(found.error().code, fmt::format("CLUSTAR_CONTROL_IFNAME={}: {}", wanted, found.error().message));
  }
  return found->front().addresses.front().endpoint();
}

Result<net::Endpoint> data_host(const net::Endpoint& control, const std::optional<net::Endpoint>& named, bool apart) {
  if (apart && !named) {
    return fail(ErrorCode::kRemote,
                "the peer names no address for packets; set CLUSTAR_CONTROL_IFNAME on all ranks, or on none");
  }
  if (!named) return control;
  const bool same = named->ipv6 == control.ipv6 && named->address == control.address;
  if (same || apart) return *named;
  return fail(ErrorCode::kRemote,
              fmt::format("the peer at {} wants packets at {}; another host than the control connection's is allowed "
                          "with CLUSTAR_CONTROL_IFNAME only, on all ranks",
                          net::Address(control).to_string(), net::Address(*named).to_string()));
}

}  // namespace clustar::transport::io
