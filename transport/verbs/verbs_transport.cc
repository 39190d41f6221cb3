#include "transport/verbs/verbs_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/verbs/connect.h"
#include "transport/verbs/listener.h"

namespace clustar::transport::verbs {
namespace {

std::vector<DeviceProperties> describe(std::span<const UsablePort> ports, const Settings& settings) {
  std::vector<DeviceProperties> all = device_properties(ports);
  for (DeviceProperties& one : all) {
    one.max_recv_parts = kMaxRecvParts;
    // A registration belongs to the channel that made it.
    one.global_registration = false;
    // A line's bytes may be written in any order where relaxed ordering is on, and by software devices.
    one.ordered_lines = false;
    one.force_flush = settings.force_flush;
  }
  return all;
}

}  // namespace

VerbsTransport::VerbsTransport(const Settings& settings, const Clock& clock, Log log, net::Interface control,
                               std::vector<UsablePort> ports)
    : context_{settings, clock, std::move(log)},
      control_(std::move(control)),
      ports_(std::move(ports)),
      table_(describe(ports_, settings)) {
  nics_.reserve(ports_.size() + DeviceTable::kMostFused);
}

Result<std::unique_ptr<Transport>> VerbsTransport::create(const Config& config, const Clock& clock, Log log) {
  return create(Settings(config), clock, std::move(log));
}

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::create(const Settings& settings, const Clock& clock, Log log) {
  auto search = search_ports(settings);
  if (!search) return tl::unexpected(search.error());
  if (search->usable.empty()) return tl::unexpected(why_none(*search, settings));
  auto interfaces = net::find_interfaces(settings.interface_filter, settings.family);
  if (!interfaces) return tl::unexpected(interfaces.error());
  for (const std::string& reason : search->refused) log.info("verbs: not used: " + reason);
  for (const UsablePort& port : search->usable) {
    if (!port.warning.empty()) log.warn(fmt::format("verbs: {}: {}", port.info.device, port.warning));
  }
  std::unique_ptr<VerbsTransport> made(
      new VerbsTransport(settings, clock, std::move(log), interfaces->front(), std::move(search->usable)));
  for (const UsablePort& usable : made->ports_) {
    auto port = Port::open(usable, settings);
    if (!port) return tl::unexpected(port.error());
    std::vector<Port> one;
    one.push_back(std::move(*port));
    made->nics_.push_back(std::make_unique<Nic>(std::move(one), made->control_, made->context_));
  }
  return made;
}

Result<int> VerbsTransport::fuse(std::span<const int> devices) {
  if (devices.size() > kMaxPorts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: a device of {} ports; 1 to {} are allowed", devices.size(), kMaxPorts));
  }
  std::vector<Port> ports;
  for (const int device : devices) {
    if (device < 0 || static_cast<std::size_t>(device) >= ports_.size()) break;  // the table says why not
    auto opened = Port::open(ports_[static_cast<std::size_t>(device)], context_.settings);
    if (!opened) return tl::unexpected(opened.error());
    ports.push_back(std::move(*opened));
  }
  const auto index = table_.fuse(devices);
  if (!index || static_cast<std::size_t>(*index) < nics_.size()) return index;
  nics_.push_back(std::make_unique<Nic>(std::move(ports), control_, context_));
  return index;
}

Result<Nic*> VerbsTransport::nic(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= nics_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: device {} does not exist; 0 to {} do", device, nics_.size() - 1));
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

std::string VerbsTransport::summary() const {
  std::string text = "verbs:";
  for (const auto& device : nics_) {
    const Nic::Counters& count = device->counters();
    text += fmt::format(
        " {} sent {} messages / {} bytes by {} writes, received {} / {}, {} of them eager, {} flushes, {} queue pairs "
        "failed, {} writes repeated by another, {} retries of the port, {} strangers dropped;",
        device->name(), count.messages_sent.load(), count.bytes_sent.load(), count.writes.load(),
        count.messages_received.load(), count.bytes_received.load(), count.eager.load(), count.flushes.load(),
        count.failed_queue_pairs.load(), count.failovers.load(), device->retries(), count.strangers.load());
  }
  text.pop_back();
  return text;
}

}  // namespace clustar::transport::verbs
