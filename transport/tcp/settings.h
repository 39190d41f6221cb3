// Settings of the TCP transport.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct TcpSettings {
  int sockets = 1;                        // data sockets per connection
  std::uint32_t eager_bytes = 64 << 10;   // largest message that may go ahead of its receive
  std::uint32_t window_bytes = 1 << 20;   // per connection that may be ahead of their receives
  std::uint32_t chunk_bytes = 4 << 20;    // a longer message is cut and spread; at least eager_bytes counts
  std::uint32_t notsent_bytes = 1 << 20;  // unsent in the kernel, per socket: the rest can still be ordered
  std::string congestion;                 // TCP_CONGESTION of every socket; empty: the kernel's default

  static const TypedTable<TcpSettings>& table();
};

}  // namespace clustar
