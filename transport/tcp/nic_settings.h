// What a TCP NIC and its channels go by.
#pragma once

#include <algorithm>

#include "transport/api/context.h"
#include "transport/api/level_classes.h"
#include "transport/api/settings.h"
#include "transport/base/config.h"
#include "transport/net/interfaces.h"
#include "transport/net/settings.h"
#include "transport/net/socket.h"
#include "transport/tcp/core/wire.h"
#include "transport/tcp/settings.h"

namespace clustar::transport::tcp {

struct Settings {
  SharedSettings shared;
  std::uint32_t eager_bytes = 0;  // what our sends go by: shared.eager_bytes at most
  net::SocketOptions socket;
  std::uint8_t data_sockets = 1;
  std::uint32_t chunk_bytes = 0;
  Duration stall_timeout{0};
  Duration send_ahead{0};  // SendOrderSettings::ahead_us
  std::string interface_filter;
  net::Family family = net::Family::kAny;
  int line_mbps = 0;
  LevelClasses classes{};  // SendOrderSettings::dscp

  explicit Settings(const Config& config)
      : Settings(config.get<TcpSettings>(), config.get<NetworkSettings>(), config.get<SendOrderSettings>(),
                 config.get<TransportSettings>()) {}
  Settings(const TcpSettings& tcp, const NetworkSettings& network, const SendOrderSettings& order,
           const TransportSettings& general)
      : shared{tcp.eager_bytes, tcp.window_bytes},
        eager_bytes(tcp.eager_bytes),
        socket{tcp.congestion, tcp.notsent_bytes},
        data_sockets(static_cast<std::uint8_t>(tcp.sockets)),
        // A message that goes ahead of its receive is one chunk on the wire.
        chunk_bytes(std::max(tcp.chunk_bytes, tcp.eager_bytes)),
        stall_timeout(general.stall_timeout),
        send_ahead(std::chrono::microseconds(order.ahead_us)),
        interface_filter(network.interfaces),
        family(network.family()),
        line_mbps(network.line_mbps),
        classes(LevelClasses::parse(order.order == "coflow" ? order.dscp : "").value_or(LevelClasses())) {}

  // What goes ahead of its receive is one chunk, which nothing interrupts. A receiver takes longer ones all the same:
  // its sender may know no order.
  void keep_order(bool ordered) {
    if (ordered && send_ahead > Duration::zero()) eager_bytes = std::min<std::uint32_t>(eager_bytes, kOrderedChunk);
  }
  SharedSettings sending() const { return {eager_bytes, shared.window_bytes}; }
};

}  // namespace clustar::transport::tcp
