// Reliable transport over kernel TCP: the one that works everywhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/api/context.h"
#include "transport/api/transport.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpTransport final : public Transport {
 public:
  // Error: no usable interface.
  static Result<std::unique_ptr<Transport>> create(const TransportContext& context);

  const char* name() const override { return "tcp"; }
  std::span<const DeviceProperties> devices() const override { return properties_; }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  Counters counters() const override;

 private:
  explicit TcpTransport(const TransportContext& context)
      : context_{Settings(context.config), context.clock, context.log}, policies_(policies_of(context)) {}

  Result<Nic*> nic(int device);

  Context context_;
  const std::shared_ptr<SendPolicies> policies_;  // outlives the NICs' policies
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<DeviceProperties> properties_;
};

}  // namespace clustar::transport::tcp
