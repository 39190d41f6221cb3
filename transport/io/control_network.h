// Which host packets go to. Usually the control connection's, so that no peer can have us send to a third one; with
// CLUSTAR_CONTROL_IFNAME control connections run over a network of their own, and only then peers name their addresses.
#pragma once

#include <optional>

#include "transport/base/config.h"
#include "transport/base/result.h"
#include "transport/net/settings.h"
#include "transport/net/socket.h"

namespace clustar::transport::io {

// Control and data are on different networks, as the operator says.
inline bool is_apart(const Config& config) { return !config.get<NetworkSettings>().control_interfaces.empty(); }

// Where control connections to a device with the address `data` go. Error: no interface is as CLUSTAR_CONTROL_IFNAME
// wants it.
Result<net::Endpoint> control_address(const Config& config, const net::Endpoint& data);

// Where a peer's packets go: `control`: the far end of its control connection; `named`: what it says of itself. Error
// kRemote: it names another host and `apart` is false, or names none and it is true.
Result<net::Endpoint> data_host(const net::Endpoint& control, const std::optional<net::Endpoint>& named, bool apart);

}  // namespace clustar::transport::io
