// The loss-tolerant transport over packets: waist 1 by mlt/core on waist 2.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mlt/driver/device.h"
#include "mlt/driver/engine.h"
#include "transport/api/transport.h"
#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/base/time.h"

namespace clustar::mlt::driver {

class MltTransport final : public transport::Transport {
 public:
  // `clock` outlives the transport. `open_device` is called at the first listen or connect of each interface. Error: no
  // usable interface.
  static Result<std::unique_ptr<transport::Transport>> create(const Config& config, const Clock& clock, Log log,
                                                              OpenDevice open_device);

  const char* name() const override { return "mlt"; }
  std::span<const transport::DeviceProperties> devices() const override { return properties_; }
  Result<std::unique_ptr<transport::Listener>> listen(int device, const transport::ChannelOptions& options) override;
  Result<std::unique_ptr<transport::PendingConnect>> connect(int device, const transport::Handle& handle,
                                                             const transport::ChannelOptions& options) override;
  std::string summary() const override;

 private:
  struct Nic {
    net::Interface interface;
    std::unique_ptr<Engine> engine;  // null until it is used
  };

  MltTransport(const Clock& clock, Log log, OpenDevice open_device)
      : context_{clock, std::move(log)}, open_device_(std::move(open_device)) {}

  Result<Nic*> nic(int device);

  Context context_;
  const OpenDevice open_device_;
  mutable std::mutex mutex_;  // of the engines' pointers
  std::vector<Nic> nics_;
  std::vector<transport::DeviceProperties> properties_;
};

}  // namespace clustar::mlt::driver
