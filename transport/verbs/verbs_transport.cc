#include "transport/verbs/verbs_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "transport/base/copies.h"
#include "transport/verbs/connect.h"
#include "transport/verbs/listener.h"
#include "transport/verbs/ports.h"

namespace clustar::transport::verbs {
namespace {

std::vector<DeviceProperties> describe(const std::vector<UsablePort>& ports, const Settings& settings,
                                       const std::vector<std::unique_ptr<Nic>>& nics) {
  std::vector<DeviceProperties> all = device_properties(ports);
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Each channel has its queue pairs, and may have one to flush with and one that writes eager messages.
    all[i].max_channels = std::max(1, all[i].max_channels / (settings.queue_pairs + 2));
    all[i].max_recv_parts = kMaxRecvParts;
    all[i].memory_kinds = nics[i]->memory_kinds();
    // As NCCL does it: where data direct is, the distance to a GPU is that of its function.
    if (const std::string& path = nics[i]->device_memory().data_direct_path; !path.empty()) all[i].pci_path = path;
    all[i].gdr = nics[i]->device_memory().text;
    // Each channel has a protection domain in common with its NIC only.
    all[i].global_registration = false;
    // A line's bytes may be written in any order where relaxed ordering is on, and by software devices.
    all[i].ordered_lines = false;
    all[i].force_flush = settings.force_flush || nics[i]->device_memory().force_flush;
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<Transport>> VerbsTransport::create(const TransportContext& context) {
  return create(Settings(context.config), context);
}

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::create(const Settings& settings,
                                                               const TransportContext& context) {
  std::unique_ptr<VerbsTransport> made(new VerbsTransport(settings, context));
  const auto search = search_ports(settings);
  if (!search) return tl::unexpected(search.error());
  auto interfaces = net::find_interfaces(settings.interface_filter, settings.family);
  if (!interfaces) return tl::unexpected(interfaces.error());
  made->control_ = interfaces->front();
  std::vector<std::string> refused = search->refused;
  std::vector<UsablePort> usable;
  made->nics_.reserve(search->usable.size() + DeviceTable::kMostFused);
  for (const UsablePort& found : search->usable) {
    auto port = Port::open(found.info, made->context_.settings);
    if (!port) {
      refused.push_back(port.error().message);
      continue;
    }
    if (!found.warning.empty()) made->context_.log.warn("verbs: " + found.warning);
    std::vector<Port> one;
    one.push_back(std::move(*port));
    made->nics_.push_back(made->make_nic(std::move(one)));
    usable.push_back(found);
  }
  if (!made->nics_.empty() && made->nics_.front()->device_memory().facts.emulated) {
    made->context_.log.warn(
        "verbs: CLUSTAR_GDR_EMULATE=1: host memory plays GPU memory, registered as what it is; for tests only");
  }
  if (usable.empty()) return fail(ErrorCode::kUnavailable, no_port_text(settings, refused));
  if (!refused.empty()) made->context_.log.info(fmt::format("verbs: not used: {}", fmt::join(refused, "; ")));
  made->table_ = std::make_unique<DeviceTable>(describe(usable, settings, made->nics_));
  return made;
}

Result<std::vector<Port>> VerbsTransport::open_ports(std::span<const int> devices) const {
  std::vector<Port> ports;
  for (const int device : devices) {
    for (const Port& port : nics_[static_cast<std::size_t>(device)]->ports()) {
      auto opened = Port::open(port.info, context_.settings);
      if (!opened) return tl::unexpected(opened.error());
      ports.push_back(std::move(*opened));
      if (ports.back().ethernet() != ports.front().ethernet()) {
        return fail(ErrorCode::kInvalidUsage,
                    fmt::format("verbs: {} and {} are of different networks; choose ports of one by CLUSTAR_IB_HCA",
                                ports.front().name(), ports.back().name()));
      }
    }
  }
  if (ports.size() > kMaxPorts) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("verbs: a device of {} ports; 1 to {} are allowed", ports.size(), kMaxPorts));
  }
  return ports;
}

std::unique_ptr<Nic> VerbsTransport::make_nic(std::vector<Port> ports) {
  std::uint64_t megabits = 0;
  for (const Port& port : ports) megabits += static_cast<std::uint64_t>(port.info.speed_mbps);
  const std::uint64_t bytes_per_second = megabits * 1'000'000 / 8;
  auto policy = context_.policies->make({ports.front().name(), bytes_per_second});
  return std::make_unique<Nic>(std::move(ports), control_, context_, std::move(policy), bytes_per_second);
}

Result<int> VerbsTransport::fuse(std::span<const int> devices) {
  const auto known = table_->find(devices);
  if (!known) return tl::unexpected(known.error());
  if (*known) return **known;
  if (!context_.settings.may_fuse) {
    return fail(ErrorCode::kInvalidUsage, "verbs: CLUSTAR_IB_MERGE_NICS or NCCL_IB_MERGE_NICS is 0");
  }
  auto ports = open_ports(devices);
  if (!ports) return tl::unexpected(ports.error());
  // Before the table shows it to other threads.
  nics_.push_back(make_nic(std::move(*ports)));
  return table_->fuse(devices);
}

Result<Nic*> VerbsTransport::nic(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= devices().size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: device {} does not exist; 0 to {} do", device, devices().size() - 1));
  }
  return nics_[static_cast<std::size_t>(device)].get();
}

Result<std::unique_ptr<Listener>> VerbsTransport::listen(int device, const ChannelOptions& options) {
  const auto chosen = nic(device);
  if (!chosen) return tl::unexpected(chosen.error());
  return VerbsListener::open(**chosen, options);
}

Result<std::unique_ptr<PendingConnect>> VerbsTransport::connect(int device, const Handle& handle,
                                                                const ChannelOptions& options) {
  const auto chosen = nic(device);
  if (!chosen) return tl::unexpected(chosen.error());
  return VerbsPendingConnect::start(**chosen, handle, options);
}

Counters VerbsTransport::counters() const {
  Counters counters{.transport = "verbs", .note = describe_copies()};
  for (std::size_t i = 0; i < devices().size(); ++i) {
    const Nic& nic = *nics_[i];
    DeviceCounters& device = counters.devices.emplace_back(DeviceCounters{.device = nic.name()});
    nic.traffic().fill(device);
    device.queued_bytes = nic.engine().queued_bytes();
    device.retransmitted = nic.retries();
    const Nic::Counters& count = nic.counters();
    const gdr::MrCache::Counts memory = nic.registrations();
    device.own = {{"writes", "writes", count.writes.load()},
                  {"eager", "of them eager", count.eager.load()},
                  {"flushes", "flushes", count.flushes.load()},
                  {"failed_queue_pairs", "queue pairs failed", count.failed_queue_pairs.load()},
                  {"failovers", "writes repeated by another", count.failovers.load()},
                  {"strangers_dropped", "strangers dropped", count.strangers.load()},
                  {"registrations_live", "registrations live", memory.entries},
                  {"registrations_made", "made", memory.misses},
                  {"registrations_shared", "shared", memory.hits}};
    device.note = "by way: " + nic.registered_by();
  }
  return counters;
}

}  // namespace clustar::transport::verbs
