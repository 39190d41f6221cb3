// Which of the host's interfaces are used.
#pragma once

#include <string>

#include "transport/base/setting.h"
#include "transport/net/interfaces.h"

namespace clustar {

struct NetworkSettings {
  std::string interfaces;  // NCCL's syntax; empty: all but loopback and docker
  // Of mlt's control connections, in the same syntax, where these run over another network than its packets; peers may
  // then name the hosts that packets go to. Empty: the same network, and no peer names another host.
  std::string control_interfaces;
  std::string family_name = "any";
  int line_mbps = 0;  // what the line behind each interface carries; 0: what the driver says

  transport::net::Family family() const { return transport::net::family_of(family_name); }
  static const TypedTable<NetworkSettings>& table();
};

}  // namespace clustar
