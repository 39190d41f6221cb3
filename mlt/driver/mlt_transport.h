// The loss-tolerant transport over packets: waist 1 by mlt/core on waist 2.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mlt/driver/engine_group.h"
#include "transport/api/context.h"
#include "transport/api/transport.h"
#include "transport/io/packet_backend.h"

namespace clustar::mlt::driver {

class MltTransport final : public transport::Transport {
 public:
  // Changes the core's options of a device after driver_options made them. For comparisons, with another recovery (it
  // lives as long as the function) or number of paths: nobody checks what is changed but Options::check and the
  // handshake, which refuses a peer with another. What may be lost is not among it: that is
  // ChannelOptions::max_tolerance_ppm.
  using Adjust = std::function<void(Options&)>;

  // A device of `backend` is opened for each engine, the first at its first listen or connect, and `adjust` is called
  // after it. Error: the backend
  // has no device that can be used.
  static Result<std::unique_ptr<transport::Transport>> create(const transport::TransportContext& context,
                                                              std::unique_ptr<io::PacketBackend> backend,
                                                              Adjust adjust = {});

  const char* name() const override { return "mlt"; }
  std::span<const transport::DeviceProperties> devices() const override { return properties_; }
  Result<std::unique_ptr<transport::Listener>> listen(int device, const transport::ChannelOptions& options) override;
  Result<std::unique_ptr<transport::PendingConnect>> connect(int device, const transport::Handle& handle,
                                                             const transport::ChannelOptions& options) override;
  transport::Counters counters() const override;

 private:
  struct Nic {
    io::DeviceInfo info;
    EngineGroup engines;
  };

  MltTransport(const transport::TransportContext& context, std::unique_ptr<io::PacketBackend> backend, Adjust adjust)
      : context_{context.clock, context.log}, backend_(std::move(backend)), adjust_(std::move(adjust)) {}

  // Where a connection of these options belongs.
  struct Place {
    std::shared_ptr<Engine> engine;
    net::Address control;
  };
  Result<Place> place(int device, const transport::ChannelOptions& options);
  Result<std::unique_ptr<Engine>> open_engine(std::size_t device, transport::TrafficBook& traffic);

  Context context_;
  const std::unique_ptr<io::PacketBackend> backend_;  // outlives the engines' devices
  const Adjust adjust_;
  mutable std::mutex mutex_;  // of the backend and the groups of engines
  std::vector<Nic> nics_;
  std::vector<transport::DeviceProperties> properties_;
};

}  // namespace clustar::mlt::driver
