// What the TCP transport takes from the project's Config.
#pragma once

#include <algorithm>

#include "transport/api/context.h"
#include "transport/base/config.h"
#include "transport/net/interfaces.h"
#include "transport/net/socket.h"
#include "transport/tcp/core/wire.h"

namespace clustar::transport::tcp {

struct Settings {
  SharedSettings shared;
  net::SocketOptions socket;
  std::uint8_t data_sockets = 1;
  std::uint32_t chunk_bytes = 0;
  Duration stall_timeout{0};
  Duration send_ahead{0};  // Config::send_ahead_us
  std::string interface_filter;
  net::Family family = net::Family::kAny;

  explicit Settings(const Config& config)
      : shared{config.tcp_eager_bytes, config.tcp_window_bytes},
        socket{config.tcp_congestion, config.tcp_notsent_bytes},
        data_sockets(static_cast<std::uint8_t>(config.tcp_sockets)),
        // A message that goes ahead of its receive is one chunk on the wire.
        chunk_bytes(std::max(config.tcp_chunk_bytes, config.tcp_eager_bytes)),
        stall_timeout(config.stall_timeout),
        send_ahead(std::chrono::microseconds(config.send_ahead_us)),
        interface_filter(config.socket_ifname),
        family(config.socket_family == "ipv4"   ? net::Family::kIpv4
               : config.socket_family == "ipv6" ? net::Family::kIpv6
                                                : net::Family::kAny) {}

  // What goes ahead of its receive is one chunk, which nothing interrupts.
  void keep_order(bool ordered) {
    if (ordered && send_ahead > Duration::zero()) {
      shared.eager_bytes = std::min<std::uint32_t>(shared.eager_bytes, kOrderedChunk);
    }
  }
};

}  // namespace clustar::transport::tcp
