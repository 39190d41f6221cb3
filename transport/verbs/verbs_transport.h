// Reliable transport over RDMA: queue pairs of type RC on InfiniBand and RoCE v2, receiver-driven writes without
// copies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/api/device_table.h"
#include "transport/api/transport.h"
#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/verbs/nic.h"

namespace clustar::transport::verbs {

class VerbsTransport final : public Transport {
 public:
  // `clock` outlives the transport. Error kUnavailable: no RDMA port that can be used, and why.
  static Result<std::unique_ptr<Transport>> create(const Config& config, const Clock& clock, Log log);
  static Result<std::unique_ptr<VerbsTransport>> create(const Settings& settings, const Clock& clock, Log log);

  const char* name() const override { return "verbs"; }
  std::span<const DeviceProperties> devices() const override { return table_->devices(); }
  Result<int> fuse(std::span<const int> devices) override;
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  std::string summary() const override;

 private:
  VerbsTransport(const Settings& settings, const Clock& clock, Log log) : context_{settings, clock, std::move(log)} {}

  Result<Nic*> nic(int device) const;
  // Of the ports of `devices`, opened again. Error: not of one network, or more than kMaxPorts.
  Result<std::vector<Port>> open_ports(std::span<const int> devices) const;

  Context context_;
  net::Interface control_;
  // Other threads use it while it grows: its room is made at the start, and the table says how many there are.
  std::vector<std::unique_ptr<Nic>> nics_;
  std::unique_ptr<DeviceTable> table_;
};

}  // namespace clustar::transport::verbs
