// Reliable transport over RDMA: queue pairs of type RC on InfiniBand and RoCE v2, receiver-driven writes without
// copies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/api/context.h"
#include "transport/api/device_table.h"
#include "transport/api/transport.h"
#include "transport/verbs/nic.h"

namespace clustar::transport::verbs {

class VerbsTransport final : public Transport {
 public:
  // Error kUnavailable: no RDMA port that can be used, and why.
  static Result<std::unique_ptr<Transport>> create(const TransportContext& context);
  // With other settings than the context's.
  static Result<std::unique_ptr<VerbsTransport>> create(const Settings& settings, const TransportContext& context);

  const char* name() const override { return "verbs"; }
  std::span<const DeviceProperties> devices() const override { return table_->devices(); }
  Result<int> fuse(std::span<const int> devices) override;
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  Counters counters() const override;

 private:
  VerbsTransport(const Settings& settings, const TransportContext& context)
      : context_{settings, context.clock, context.log, policies_of(context)} {}

  Result<Nic*> nic(int device) const;
  std::unique_ptr<Nic> make_nic(std::vector<Port> ports);
  // Of the ports of `devices`, opened again. Error: not of one network, or more than kMaxPorts.
  Result<std::vector<Port>> open_ports(std::span<const int> devices) const;

  Context context_;
  net::Interface control_;
  // Other threads use it while it grows: its room is made at the start, and the table says how many there are.
  std::vector<std::unique_ptr<Nic>> nics_;
  std::unique_ptr<DeviceTable> table_;
};

}  // namespace clustar::transport::verbs
