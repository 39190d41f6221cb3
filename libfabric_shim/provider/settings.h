// Settings of the provider: FI_CLUSTAR_<NAME>, as libfabric names them. Every other setting of ours counts here, too,
// as CLUSTAR_<NAME> or FI_CLUSTAR_<NAME>.
#pragma once

#include <cstdint>

#include "transport/base/config.h"
#include "transport/base/setting.h"
#include "transport/base/time.h"

namespace clustar::libfabric_shim::provider {

struct ProviderSettings {
  std::uint32_t eager_bytes = 16 << 10;                 // longer messages go by rendezvous
  std::uint32_t unexpected_bytes = 256 << 20;           // of an endpoint; beyond it nothing is taken from the network
  Duration connect_timeout = std::chrono::seconds(30);  // until a peer's endpoint has answered; 0: never
  Duration close_timeout = std::chrono::seconds(5);     // for what was sent and has not left when an endpoint closes
  Duration stall_timeout{0};                            // TransportSettings': of messages that are on their way only

  static const TypedTable<ProviderSettings>& table();
};

// Declares all of them to libfabric (`fi_info -e` shows them). Once, before load_settings().
void declare_settings();
// Of FI_CLUSTAR_* and CLUSTAR_*, the former first. Error: a bad value or a contradiction, with what is allowed.
Result<Config> load_settings();

}  // namespace clustar::libfabric_shim::provider
