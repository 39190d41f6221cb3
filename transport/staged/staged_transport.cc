#include "transport/staged/staged_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/staged/recv_channel.h"
#include "transport/staged/send_channel.h"

namespace clustar::transport::staged {
namespace {

class StagedListener final : public Listener {
 public:
  StagedListener(Context& context, std::unique_ptr<Listener> inner) : context_(context), inner_(std::move(inner)) {}
  const Handle& handle() const override { return inner_->handle(); }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override {
    auto channel = inner_->poll_accept();
    if (!channel || *channel == nullptr) return channel;
    return std::make_unique<StagedRecvChannel>(context_, std::move(*channel));
  }

 private:
  Context& context_;
  const std::unique_ptr<Listener> inner_;
};

class StagedPendingConnect final : public PendingConnect {
 public:
  StagedPendingConnect(Context& context, std::unique_ptr<PendingConnect> inner)
      : context_(context), inner_(std::move(inner)) {}
  Result<std::unique_ptr<SendChannel>> poll() override {
    auto channel = inner_->poll();
    if (!channel || *channel == nullptr) return channel;
    return std::make_unique<StagedSendChannel>(context_, std::move(*channel));
  }

 private:
  Context& context_;
  const std::unique_ptr<PendingConnect> inner_;
};

}  // namespace

bool reaches_gpus(const Transport& transport) {
  const auto devices = transport.devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const DeviceProperties& device) { return (device.memory_kinds & ~gdr::kHostOnly) != 0; });
}

StagedTransport::StagedTransport(std::unique_ptr<Transport> inner, Options options, const Clock& clock, Log log)
    : inner_(std::move(inner)),
      name_(std::string(inner_->name()) + "+staged"),
      context_{std::move(options), inner_->name(), clock, std::move(log)},
      room_(inner_->devices().size() + kMostFused),
      table_(std::make_unique<DeviceProperties[]>(room_)) {
  for (const DeviceProperties& device : inner_->devices()) table_[count_++] = describe(device);
}

DeviceProperties StagedTransport::describe(const DeviceProperties& inner) const {
  DeviceProperties properties = inner;
  properties.memory_kinds |= context_.options.kinds;
  properties.gdr = context_.options.gdr;
  properties.force_flush = inner.force_flush || context_.options.emulated;
  return properties;
}

std::span<const DeviceProperties> StagedTransport::devices() const {
  return {table_.get(), count_.load(std::memory_order_acquire)};
}

Result<int> StagedTransport::fuse(std::span<const int> devices) {
  auto fused = inner_->fuse(devices);
  if (!fused) return fused;
  const auto all = inner_->devices();
  std::size_t count = count_.load(std::memory_order_relaxed);
  for (; count < std::min(all.size(), room_); ++count) table_[count] = describe(all[count]);
  count_.store(count, std::memory_order_release);
  if (static_cast<std::size_t>(*fused) >= count) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{}: no room for another fused device; {} are allowed", name_, room_));
  }
  return fused;
}

Result<std::unique_ptr<Listener>> StagedTransport::listen(int device, const ChannelOptions& options) {
  auto listener = inner_->listen(device, options);
  if (!listener) return listener;
  return std::make_unique<StagedListener>(context_, std::move(*listener));
}

Result<std::unique_ptr<PendingConnect>> StagedTransport::connect(int device, const Handle& handle,
                                                                 const ChannelOptions& options) {
  auto pending = inner_->connect(device, handle, options);
  if (!pending) return pending;
  return std::make_unique<StagedPendingConnect>(context_, std::move(*pending));
}

transport::Counters StagedTransport::counters() const {
  transport::Counters counters = inner_->counters();
  const Counters& count = context_.counters;
  counters.note +=
      fmt::format("; staged{}: {} messages / {} bytes from GPU memory, {} requests / {} bytes to it, {} larger arenas",
                  context_.options.emulated ? " (emulated)" : "", count.sent.load(), count.sent_bytes.load(),
                  count.received.load(), count.received_bytes.load(), count.larger_arenas.load());
  return counters;
}

}  // namespace clustar::transport::staged
