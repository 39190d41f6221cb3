#include "libfabric_shim/rdm/ofi_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "libfabric_shim/offer.h"
#include "libfabric_shim/rdm/connect.h"
#include "libfabric_shim/rdm/devices.h"
#include "libfabric_shim/rdm/gpu_devices.h"
#include "libfabric_shim/rdm/listener.h"
#include "transport/base/copies.h"

namespace clustar::transport::ofi {

Result<std::unique_ptr<Transport>> OfiTransport::create(const TransportContext& context) {
  std::unique_ptr<OfiTransport> transport(new OfiTransport(context));
  Context& shared = transport->context_;
  auto offer = find_offer(shared.settings.provider, shared.settings.progress);
  if (!offer) return tl::unexpected(offer.error());
  const Choice& choice = offer->choice;
  auto devices = find_devices(std::move(offer->infos), choice.provider, shared.settings);
  if (!devices) return tl::unexpected(devices.error());
  const auto policies = policies_of(context);
  const GpuDevices gpus = GpuDevices::find(context, shared.settings);
  shared.gpu_driver = gpus.driver();
  for (Found& device : *devices) {
    auto domain = gpus.open(device);
    if (!domain) return tl::unexpected(domain.error());
    if (domain->gpu() != GpuUse::kNone) shared.settings.keep_to_memory();
    const bool knows_speed = device.control.knows_speed() || domain->info().nic != nullptr;
    const auto speed = static_cast<std::uint64_t>(knows_speed ? device.properties.speed_mbps : 0) * 1'000'000 / 8;
    auto policy = policies->make({device.name, speed});
    shared.settings.keep_order(policy->orders());
    transport->properties_.push_back(std::move(device.properties));
    transport->nics_.push_back(std::make_unique<Nic>(device.name, std::move(*domain), std::move(device.control), shared,
                                                     std::move(policy), speed));
  }
  transport->note_ = fmt::format("libfabric's {} ({})", choice.provider, choice.why);
  shared.log.info(
      fmt::format("ofi: {}{}", transport->note_,
                  choice.refused.empty() ? "" : fmt::format("; not {}", fmt::join(choice.refused, "; not "))));
  return transport;
}

Result<Nic*> OfiTransport::nic(int device) {
  if (device < 0 || static_cast<std::size_t>(device) >= nics_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ofi: device {} does not exist; 0 to {} do", device, nics_.size() - 1));
  }
  return nics_[static_cast<std::size_t>(device)].get();
}

Result<std::unique_ptr<Listener>> OfiTransport::listen(int device, const ChannelOptions& options) {
  const auto chosen = nic(device);
  if (!chosen) return tl::unexpected(chosen.error());
  return OfiListener::open(**chosen, options);
}

Result<std::unique_ptr<PendingConnect>> OfiTransport::connect(int device, const Handle& handle,
                                                              const ChannelOptions& options) {
  const auto chosen = nic(device);
  if (!chosen) return tl::unexpected(chosen.error());
  return OfiPendingConnect::start(**chosen, handle, options);
}

Counters OfiTransport::counters() const {
  Counters counters{.transport = "ofi", .note = note_ + "; " + describe_copies()};
  for (const auto& nic : nics_) {
    DeviceCounters& device = counters.devices.emplace_back(DeviceCounters{.device = nic->name()});
    nic->traffic().fill(device);
    device.queued_bytes = nic->engine().queued_bytes();
    const Nic::Counters& count = nic->counters();
    device.own = {{"frames", "frames", count.frames.load()},
                  {"payloads", "payloads of their own", count.payloads.load()},
                  {"direct", "messages without a frame", count.direct.load()},
                  {"early_messages", "before their receive", count.early_messages.load()},
                  {"strangers_dropped", "strangers dropped", count.strangers.load()}};
  }
  return counters;
}

}  // namespace clustar::transport::ofi
