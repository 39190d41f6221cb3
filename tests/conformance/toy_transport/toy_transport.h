// The smallest transport that passes the suite: messages move through memory, within one process. What a new transport
// needs, and what transport/message does for it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "transport/api/context.h"
#include "transport/api/transport.h"
#include "transport/message/send_engine.h"
#include "transport/message/traffic_book.h"

namespace clustar::transport::toy {

class ToyTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(const TransportContext& context);

  const char* name() const override { return "toy"; }
  std::span<const DeviceProperties> devices() const override { return std::span(&device_, 1); }
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  Counters counters() const override;

 private:
  explicit ToyTransport(const TransportContext& context);

  DeviceProperties device_;
  SendEngine engine_;
  TrafficBook traffic_;
};

}  // namespace clustar::transport::toy
