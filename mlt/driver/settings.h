// Settings of the transport mlt.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct MltSettings {
  std::string io = "udp";                 // what carries its packets: udp, or queue pairs of RDMA NICs
  std::string engine = "auto";            // what moves its bytes: inline (callers only), thread, or auto
  std::uint32_t engines = 0;              // per NIC at most; 0 = auto
  std::string parity = "auto";            // where loss would cost a long round trip, or off
  std::uint32_t loss_important_ppm = 0;   // of the packets that may be lost: these may not
  std::string psk_file;                   // with the secret that all ranks share; empty: no protection
  std::string psk_mode = "authenticate";  // header and payload, which travels in clear | encrypt: the payload, too

  static const TypedTable<MltSettings>& table();
};

}  // namespace clustar
