// Settings of packets over DPDK. Needs no DPDK: the names are known where the module is not.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct DpdkSettings {
  std::string devices;               // as core/device_spec.h says; empty: none
  std::string huge_pages = "auto";   // auto: where there are free ones | yes | no
  std::uint32_t memory_mb = 256;     // of DPDK in this process
  std::uint32_t mtu = 0;             // of IP packets; 0: the port's
  std::uint32_t descriptors = 1024;  // of each ring, receive and transmit
  std::uint32_t queues = 1;          // of a port, each way
  std::uint32_t held = 2048;         // packets that were received and not released, besides those in the rings

  static const TypedTable<DpdkSettings>& table();
};

}  // namespace clustar
