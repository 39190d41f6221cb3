// CLUSTAR_IO=dpdk: the devices that CLUSTAR_DPDK_DEVICES names.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/packet_backend.h"

namespace clustar::transport::io::dpdk {

class DpdkBackend final : public PacketBackend {
 public:
  // DPDK begins here, the first time in a process. Errors: no devices are named, a device without an address, DPDK does
  // not begin.
  static Result<std::unique_ptr<PacketBackend>> create(const Config& config, const Log& log);

  // What the ends say to each other is what those over kernel UDP say.
  const char* name() const override { return "udp"; }
  Result<std::vector<DeviceInfo>> devices() override;
  Result<std::unique_ptr<PacketIo>> open(std::size_t device) override;

 private:
  DpdkBackend(Config config, const Log& log, std::vector<DeviceSpec> specs)
      : config_(std::move(config)), log_(log), told_(log), specs_(std::move(specs)) {}

  const Config config_;
  const Log log_;
  const EalLog told_;
  const std::vector<DeviceSpec> specs_;  // each with a subnet
};

}  // namespace clustar::transport::io::dpdk
