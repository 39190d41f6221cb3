// Reliable transport over kernel TCP: the one that works everywhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpTransport final : public Transport {
 public:
  // `clock` outlives the transport. Error: no usable interface.
  static Result<std::unique_ptr<Transport>> create(const Config& config, const Clock& clock, Log log);

  const char* name() const override { return "tcp"; }
  std::span<const DeviceProperties> devices() const override { return properties_; }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  std::string summary() const override;

 private:
  TcpTransport(const Config& config, const Clock& clock, Log log) : context_{Settings(config), clock, std::move(log)} {}

  Result<Nic*> nic(int device);

  Context context_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<DeviceProperties> properties_;
};

}  // namespace clustar::transport::tcp
