// A backend whose devices disturb what they send, for experiments (CLUSTAR_INJECT_FAULTS, `clustar perf
// --inject-loss`).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/io/decorators/fault_spec.h"
#include "transport/io/packet_backend.h"

namespace clustar::transport::io {

// What `inner` opens, behind a FaultyIo. Devices draw from streams of their own, made of the spec's seed and of their
// addresses; PacketIo::describe() counts what was done.
class FaultyBackend final : public PacketBackend {
 public:
  FaultyBackend(std::unique_ptr<PacketBackend> inner, const FaultSpec& spec) : inner_(std::move(inner)), spec_(spec) {}

  const char* name() const override { return inner_->name(); }
  Result<std::vector<DeviceInfo>> devices() override { return inner_->devices(); }
  Result<std::unique_ptr<PacketIo>> open(std::size_t device) override;

 private:
  const std::unique_ptr<PacketBackend> inner_;
  const FaultSpec spec_;
};

}  // namespace clustar::transport::io
