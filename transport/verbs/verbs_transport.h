// Reliable transport over RDMA: queue pairs of type RC on InfiniBand and RoCE v2, receiver-driven writes without
// copies.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
  std::span<const DeviceProperties> devices() const override { return properties_; }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  std::string summary() const override;

  // Another device made of the ports of these, 1 .. kMaxPorts of them, which work as one; its number. Not beside other
  // calls.
  Result<int> fuse(std::span<const int> devices);

 private:
  VerbsTransport(const Settings& settings, const Clock& clock, Log log) : context_{settings, clock, std::move(log)} {}

  Result<Nic*> nic(int device) const;
  void add(std::vector<Port> ports);

  Context context_;
  net::Interface control_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<DeviceProperties> properties_;
};

}  // namespace clustar::transport::verbs
