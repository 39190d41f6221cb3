// Backends for tests that put something of their own around a device, or in its place.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/io/decorators/forwarding_io.h"
#include "transport/io/packet_backend.h"

namespace clustar::transport::conformance {

using OpenedIo = Result<std::unique_ptr<io::PacketIo>>;

// What `inner` opens, wrapped; its devices are said to reach `reach`, if it is given.
class WrappedBackend final : public io::PacketBackend {
 public:
  using Wrap = std::function<OpenedIo(std::unique_ptr<io::PacketIo>)>;
  WrappedBackend(std::unique_ptr<io::PacketBackend> inner, Wrap wrap, std::optional<io::Reach> reach = {})
      : inner_(std::move(inner)), wrap_(std::move(wrap)), reach_(std::move(reach)) {}
  const char* name() const override { return inner_->name(); }
  Result<std::vector<io::DeviceInfo>> devices() override {
    auto devices = inner_->devices();
    if (!devices || !reach_) return devices;
    for (io::DeviceInfo& device : *devices) device.reach = *reach_;
    return devices;
  }
  OpenedIo open(std::size_t device) override {
    auto io = inner_->open(device);
    return io ? wrap_(std::move(*io)) : std::move(io);
  }

 private:
  const std::unique_ptr<io::PacketBackend> inner_;
  const Wrap wrap_;
  const std::optional<io::Reach> reach_;
};

// One device, opened by a function, whose control connections go over loopback.
class OneDeviceBackend final : public io::PacketBackend {
 public:
  using Open = std::function<OpenedIo()>;
  OneDeviceBackend(std::string name, Open open) : name_(std::move(name)), open_(std::move(open)) {}
  const char* name() const override { return name_.c_str(); }
  Result<std::vector<io::DeviceInfo>> devices() override {
    const net::Endpoint loopback{false, 0, {std::byte{127}, {}, {}, std::byte{1}}};
    return std::vector{io::DeviceInfo{.name = "test", .speed_mbps = 10'000, .control = loopback}};
  }
  OpenedIo open(std::size_t) override { return open_(); }

 private:
  const std::string name_;
  const Open open_;
};

// Says that it reaches this memory.
class ReachingIo final : public io::ForwardingIo {
 public:
  ReachingIo(std::unique_ptr<io::PacketIo> inner, io::Reach reach)
      : ForwardingIo(std::move(inner)), reach_(std::move(reach)) {}
  io::Reach reach() const override { return reach_; }

 private:
  const io::Reach reach_;
};

}  // namespace clustar::transport::conformance
