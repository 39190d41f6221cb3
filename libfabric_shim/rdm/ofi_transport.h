// Reliable transport over libfabric's reliable datagram endpoints: what EFA, Slingshot and others have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libfabric_shim/rdm/nic.h"
#include "transport/api/context.h"
#include "transport/api/transport.h"

namespace clustar::transport::ofi {

class OfiTransport final : public Transport {
 public:
  // Errors: no provider, none of the name that was asked for (lists what is there), or no domain on a usable interface.
  static Result<std::unique_ptr<Transport>> create(const TransportContext& context);

  const char* name() const override { return "ofi"; }
  std::span<const DeviceProperties> devices() const override { return properties_; }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  Counters counters() const override;

 private:
  explicit OfiTransport(const TransportContext& context)
      : context_{Settings(context.config), context.clock, context.log, {}} {}

  Result<Nic*> nic(int device);

  Context context_;
  std::string note_;  // the provider, and why it was taken
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<DeviceProperties> properties_;
};

}  // namespace clustar::transport::ofi
