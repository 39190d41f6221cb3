// CLUSTAR_IO=udp: the host's interfaces as devices.
#pragma once

#include <memory>
#include <vector>

#include "transport/io/packet_backend.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::io::udp {

class UdpBackend final : public PacketBackend {
 public:
  // Error: no interface is as CLUSTAR_SOCKET_IFNAME wants it.
  static Result<std::unique_ptr<PacketBackend>> create(const Config& config);

  const char* name() const override { return "udp"; }
  Result<std::vector<DeviceInfo>> devices() override;
  Result<std::unique_ptr<PacketIo>> open(std::size_t device) override;

 private:
  UdpBackend(Config config, std::vector<net::Interface> interfaces)
      : config_(std::move(config)), interfaces_(std::move(interfaces)) {}

  const Config config_;
  const std::vector<net::Interface> interfaces_;
};

}  // namespace clustar::transport::io::udp
