// CLUSTAR_IO=ofi: the domains of a libfabric provider that has datagrams, as devices.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libfabric_shim/dgram/devices.h"
#include "libfabric_shim/dgram/ofi_io.h"
#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/io/packet_backend.h"

namespace clustar::transport::ofi {

class OfiBackend final : public io::PacketBackend {
 public:
  // Says in the log which provider it took, and why no other. Errors: no libfabric, no provider, none of the name that
  // was asked for (lists what is there), or none on a usable interface.
  static Result<std::unique_ptr<io::PacketBackend>> create(const Config& config, const Log& log);

  const char* name() const override { return "ofi"; }
  Result<std::vector<io::DeviceInfo>> devices() override;
  Result<std::unique_ptr<io::PacketIo>> open(std::size_t device) override;

 private:
  OfiBackend(Config config, Log log, std::vector<DatagramDevice> places)
      : config_(std::move(config)), log_(std::move(log)), places_(std::move(places)) {}

  const Config config_;
  const Log log_;
  const std::vector<DatagramDevice> places_;
};

}  // namespace clustar::transport::ofi
