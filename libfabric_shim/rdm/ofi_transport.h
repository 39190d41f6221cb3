// Reliable transport over libfabric's reliable datagram endpoints: what EFA, Slingshot and others have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libfabric_shim/rdm/nic.h"
#include "transport/api/context.h"
#include "transport/api/device_table.h"
#include "transport/api/transport.h"

namespace clustar::transport::ofi {

class OfiTransport final : public Transport {
 public:
  // Errors: no provider, none of the name that was asked for (lists what is there), or no domain on a usable interface.
  static Result<std::unique_ptr<Transport>> create(const TransportContext& context);

  const char* name() const override { return "ofi"; }
  std::span<const DeviceProperties> devices() const override { return table_->devices(); }
  // Their domains are opened once more; the fused device has endpoints of its own.
  Result<int> fuse(std::span<const int> devices) override;
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  Counters counters() const override;

 private:
  explicit OfiTransport(const TransportContext& context)
      : context_{Settings(context.config), context.clock, context.log, {}}, policies_(policies_of(context)) {}

  Result<Nic*> nic(int device) const;

  Context context_;
  std::string note_;  // the provider, and why it was taken
  const std::shared_ptr<SendPolicies> policies_;
  // Other threads use it while it grows: its room is made at the start, and the table says how many there are.
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<std::uint64_t> speeds_;  // of the plain devices, in bytes a second; 0: not known
  std::unique_ptr<DeviceTable> table_;
};

}  // namespace clustar::transport::ofi
