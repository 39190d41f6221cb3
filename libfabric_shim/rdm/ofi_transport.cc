#include "libfabric_shim/rdm/ofi_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fi_errno.h>

#include <utility>

#include "libfabric_shim/failure.h"
#include "libfabric_shim/library.h"
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
  const GpuDevices gpus = GpuDevices::find(context, shared.settings);
  shared.gpu_driver = gpus.driver();
  transport->nics_.reserve(devices->size() + DeviceTable::kMostFused);
  std::vector<DeviceProperties> properties;
  for (Found& device : *devices) {
    auto domain = gpus.open(device);
    if (!domain) return tl::unexpected(domain.error());
    if (domain->gpu() != GpuUse::kNone) shared.settings.keep_to_memory();
    const bool knows_speed = device.control.knows_speed() || domain->info().nic != nullptr;
    const auto speed = static_cast<std::uint64_t>(knows_speed ? device.properties.speed_mbps : 0) * 1'000'000 / 8;
    auto policy = transport->policies_->make({device.name, speed});
    shared.settings.keep_order(policy->orders());
    properties.push_back(std::move(device.properties));
    transport->speeds_.push_back(speed);
    std::vector<Domain> one;
    one.push_back(std::move(*domain));
    transport->nics_.push_back(std::make_unique<Nic>(device.name, std::move(one), std::move(device.control), shared,
                                                     std::move(policy), speed));
  }
  transport->table_ = std::make_unique<DeviceTable>(std::move(properties));
  transport->note_ = fmt::format("libfabric's {} ({})", choice.provider, choice.why);
  shared.log.info(
      fmt::format("ofi: {}{}", transport->note_,
                  choice.refused.empty() ? "" : fmt::format("; not {}", fmt::join(choice.refused, "; not "))));
  return transport;
}

Result<int> OfiTransport::fuse(std::span<const int> members) {
  const auto known = table_->find(members);
  if (!known) return tl::unexpected(known.error());
  if (*known) return **known;
  const DeviceProperties properties = fused_properties(devices(), members);
  std::vector<Domain> domains;
  std::uint64_t speed = 0;
  for (const int member : members) {
    const auto at = static_cast<std::size_t>(member);
    const Domain& plain = nics_[at]->domain();
    Info copy(Library::get()->duplicate_info(&plain.info()));
    if (!copy) return tl::unexpected(failure(plain.name(), "fi_dupinfo", FI_ENOMEM));
    auto domain = Domain::open(std::move(copy), plain.gpu());
    if (!domain) return tl::unexpected(domain.error());
    domains.push_back(std::move(*domain));
    if (domains.back().gpu() != domains.front().gpu()) {
      return fail(ErrorCode::kInvalidUsage,
                  fmt::format("ofi: {} carries GPU memory and {} does not; CLUSTAR_GDR=off carries it on neither",
                              plain.gpu() == GpuUse::kNone ? domains.front().name() : plain.name(),
                              plain.gpu() == GpuUse::kNone ? plain.name() : domains.front().name()));
    }
    speed += speeds_[at];
  }
  auto policy = policies_->make({properties.name, speed});
  const net::Interface& control = nics_[static_cast<std::size_t>(members.front())]->control();
  // Before the table shows it to other threads.
  nics_.push_back(
      std::make_unique<Nic>(properties.name, std::move(domains), control, context_, std::move(policy), speed));
  return table_->fuse(members);
}

Result<Nic*> OfiTransport::nic(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= devices().size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ofi: device {} does not exist; 0 to {} do", device, devices().size() - 1));
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
  for (std::size_t i = 0; i < devices().size(); ++i) {
    const Nic* const nic = nics_[i].get();
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
