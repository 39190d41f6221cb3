#include "tests/plugin/device_memory_transport.h"

#include <fcntl.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "gdr/registration_cache.h"

namespace clustar::tests {
namespace {

using gdr::MemoryKind;
using gdr::MemoryRef;
using transport::ChannelOptions;
using transport::DeviceProperties;
using transport::RecvPart;

class NoNic final : public gdr::Registrar {
 public:
  Result<std::unique_ptr<gdr::Registration>> register_pages(const MemoryRef&, std::uint32_t) override {
    return std::make_unique<gdr::Registration>();
  }
};

struct Shared {
  Shared(Log to, bool swallow) : log(std::move(to)), swallows(swallow) {}
  Log log;
  bool swallows;
  NoNic nic;
  gdr::RegistrationCache cache{nic};
};

class DeviceMr final : public transport::Mr {
 public:
  DeviceMr(const MemoryRef& memory, gdr::RegistrationCache::Lease lease, std::unique_ptr<transport::Mr> host)
      : Mr(memory), host_(std::move(host)), lease_(std::move(lease)) {}
  const transport::Mr& host() const { return *host_; }

 private:
  std::unique_ptr<transport::Mr> host_;
  gdr::RegistrationCache::Lease lease_;
};

template <class Channel>
Result<std::unique_ptr<transport::Mr>> register_with(Shared& shared, Channel& channel, const MemoryRef& memory) {
  auto lease = shared.cache.acquire(memory, 0);
  if (!lease) return tl::unexpected(lease.error());
  auto host = channel.reg_mr(MemoryRef::host(memory.address, memory.length));
  if (!host) return tl::unexpected(host.error());
  const bool open = memory.kind == MemoryKind::kDmaBuf && fcntl(memory.fd, F_GETFD) >= 0;
  shared.log.info(std::string("registered ") + gdr::to_string(memory.kind) + ": " + std::to_string(memory.length) +
                  " bytes from offset " + std::to_string(memory.offset) + (open ? ", descriptor open" : ""));
  return std::make_unique<DeviceMr>(memory, std::move(*lease), std::move(*host));
}

// Done when it is tested for the second time.
class OwnRequest final : public transport::Request {
 public:
  Result<transport::Progress> test() override {
    transport::Progress progress;
    progress.done = tested_;
    tested_ = !tested_;
    return progress;
  }

 private:
  bool tested_ = false;
};

class DeviceSend final : public transport::SendChannel {
 public:
  DeviceSend(Shared& shared, std::unique_ptr<transport::SendChannel> inner)
      : transport::SendChannel(inner->peer()), shared_(shared), inner_(std::move(inner)) {}
  Result<std::unique_ptr<transport::Mr>> reg_mr(const MemoryRef& memory) override {
    return register_with(shared_, *inner_, memory);
  }
  Result<transport::Request*> send(const transport::Mr& mr, std::size_t offset, std::size_t length, int tag,
                                   const transport::FlowTag& flow) override {
    if (shared_.swallows) return &swallowed_;
    const auto* device = dynamic_cast<const DeviceMr*>(&mr);  // of no bytes: the plugin's own
    return inner_->send(device == nullptr ? mr : device->host(), offset, length, tag, flow);
  }

 private:
  Shared& shared_;
  std::unique_ptr<transport::SendChannel> inner_;
  OwnRequest swallowed_;
};

class DeviceRecv final : public transport::RecvChannel {
 public:
  DeviceRecv(Shared& shared, std::unique_ptr<transport::RecvChannel> inner)
      : transport::RecvChannel(inner->peer()), shared_(shared), inner_(std::move(inner)) {}
  Result<std::unique_ptr<transport::Mr>> reg_mr(const MemoryRef& memory) override {
    return register_with(shared_, *inner_, memory);
  }
  Result<transport::Request*> recv(std::span<const RecvPart> parts) override {
    std::vector<RecvPart> host(parts.begin(), parts.end());
    for (RecvPart& part : host) {
      if (part.mr != nullptr) part.mr = &static_cast<const DeviceMr*>(part.mr)->host();
    }
    return inner_->recv(host);
  }
  Result<transport::Request*> flush(std::span<const RecvPart> parts) override {
    std::string text;
    for (const RecvPart& part : parts) {
      text += std::string(text.empty() ? "flush: " : ", ") + gdr::to_string(part.mr->memory().kind) + " " +
              std::to_string(part.length);
    }
    shared_.log.info(text);
    return &flush_;
  }

 private:
  Shared& shared_;
  std::unique_ptr<transport::RecvChannel> inner_;
  OwnRequest flush_;
};

class DeviceListener final : public transport::Listener {
 public:
  DeviceListener(Shared& shared, std::unique_ptr<transport::Listener> inner)
      : shared_(shared), inner_(std::move(inner)) {}
  const transport::Handle& handle() const override { return inner_->handle(); }
  Result<std::unique_ptr<transport::RecvChannel>> poll_accept() override {
    auto channel = inner_->poll_accept();
    if (!channel || *channel == nullptr) return channel;
    return std::make_unique<DeviceRecv>(shared_, std::move(*channel));
  }

 private:
  Shared& shared_;
  std::unique_ptr<transport::Listener> inner_;
};

class DeviceConnect final : public transport::PendingConnect {
 public:
  DeviceConnect(Shared& shared, std::unique_ptr<transport::PendingConnect> inner)
      : shared_(shared), inner_(std::move(inner)) {}
  Result<std::unique_ptr<transport::SendChannel>> poll() override {
    auto channel = inner_->poll();
    if (!channel || *channel == nullptr) return channel;
    return std::make_unique<DeviceSend>(shared_, std::move(*channel));
  }

 private:
  Shared& shared_;
  std::unique_ptr<transport::PendingConnect> inner_;
};

class DeviceMemoryTransport final : public transport::Transport {
 public:
  DeviceMemoryTransport(std::unique_ptr<Transport> inner, std::uint32_t memory_kinds, const char* gdr, bool swallow,
                        const Log& log)
      : shared_(log, swallow), inner_(std::move(inner)), devices_(inner_->devices().begin(), inner_->devices().end()) {
    for (DeviceProperties& device : devices_) {
      device.memory_kinds = memory_kinds;
      device.gdr = gdr;
    }
  }
  const char* name() const override { return "device-memory"; }
  std::span<const DeviceProperties> devices() const override { return devices_; }
  Result<std::unique_ptr<transport::Listener>> listen(int device, const ChannelOptions& options) override {
    auto listener = inner_->listen(device, options);
    if (!listener) return listener;
    return std::make_unique<DeviceListener>(shared_, std::move(*listener));
  }
  Result<std::unique_ptr<transport::PendingConnect>> connect(int device, const transport::Handle& handle,
                                                             const ChannelOptions& options) override {
    auto pending = inner_->connect(device, handle, options);
    if (!pending) return pending;
    return std::make_unique<DeviceConnect>(shared_, std::move(*pending));
  }
  transport::Counters counters() const override {
    const auto counts = shared_.cache.counts();
    transport::Counters counters{.transport = name()};
    counters.note = std::to_string(counts.hits + counts.misses) + " registrations looked up, " +
                    std::to_string(counts.leases) + " held";
    return counters;
  }

 private:
  Shared shared_;
  std::unique_ptr<Transport> inner_;
  std::vector<DeviceProperties> devices_;
};

}  // namespace

std::unique_ptr<transport::Transport> with_device_memory(std::unique_ptr<transport::Transport> inner,
                                                         std::uint32_t memory_kinds, const char* gdr, bool swallow,
                                                         const Log& log) {
  return std::make_unique<DeviceMemoryTransport>(std::move(inner), memory_kinds, gdr, swallow, log);
}

}  // namespace clustar::tests
