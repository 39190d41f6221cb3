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
#include "transport/verbs/ports.h"

namespace clustar::transport::verbs {

class VerbsTransport final : public Transport {
 public:
  // `clock` outlives the transport. Error kUnavailable: no RDMA port that can be used, and why.
  static Result<std::unique_ptr<Transport>> create(const Config& config, const Clock& clock, Log log);
  static Result<std::unique_ptr<VerbsTransport>> create(const Settings& settings, const Clock& clock, Log log);

  const char* name() const override { return "verbs"; }
  std::span<const DeviceProperties> devices() const override { return table_.devices(); }
  // 1 .. kMaxPorts ports together.
  Result<int> fuse(std::span<const int> devices) override;
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  std::string summary() const override;

 private:
  VerbsTransport(const Settings& settings, const Clock& clock, Log log, net::Interface control,
                 std::vector<UsablePort> ports);

  Result<Nic*> nic(int device) const;

  Context context_;
  const net::Interface control_;
  const std::vector<UsablePort> ports_;  // as the plain devices
  DeviceTable table_;
  std::vector<std::unique_ptr<Nic>> nics_;  // as the table; has room for all, since fuse() is called beside nic()
};

}  // namespace clustar::transport::verbs
