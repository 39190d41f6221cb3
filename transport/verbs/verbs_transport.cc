#include "transport/verbs/verbs_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/hca_filter.h"
#include "transport/verbs/connect.h"
#include "transport/verbs/listener.h"

namespace clustar::transport::verbs {
namespace {

DeviceProperties describe(const Nic& nic) {
  const io::verbs::PortInfo& first = nic.ports().front().info;
  DeviceProperties properties;
  properties.name = nic.name();
  properties.pci_path = first.pci_path;
  properties.guid = first.node_guid;
  properties.port = first.port;
  for (const Port& port : nic.ports()) properties.speed_mbps += port.info.speed_mbps;
  properties.latency_us = 0;
  properties.max_channels = 4096;
  properties.max_recv_parts = kMaxRecvParts;
  properties.memory_kinds = nic.memory_kinds();
  // Each channel has a protection domain in common with its NIC only.
  properties.global_registration = false;
  // A line's bytes may be written in any order where relaxed ordering is on, and by software devices.
  properties.ordered_lines = false;
  return properties;
}

}  // namespace

Result<std::unique_ptr<Transport>> VerbsTransport::create(const Config& config, const Clock& clock, Log log) {
  return create(Settings(config), clock, std::move(log));
}

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::create(const Settings& settings, const Clock& clock, Log log) {
  std::unique_ptr<VerbsTransport> made(new VerbsTransport(settings, clock, std::move(log)));
  const auto filter = io::verbs::HcaFilter::parse(settings.hca_filter);
  if (!filter) return tl::unexpected(filter.error());
  const auto ports = io::verbs::list_ports(*filter);
  if (!ports) return tl::unexpected(ports.error());
  auto interfaces = net::find_interfaces(settings.interface_filter, settings.family);
  if (!interfaces) return tl::unexpected(interfaces.error());
  made->control_ = interfaces->front();
  std::string refused;
  for (const io::verbs::PortInfo& info : *ports) {
    std::string reason = info.problem;
    if (reason.empty() && !info.active) reason = "it is " + info.state;
    if (reason.empty()) {
      auto port = Port::open(info, made->context_.settings);
      if (port) {
        std::vector<Port> one;
        one.push_back(std::move(*port));
        made->add(std::move(one));
        continue;
      }
      reason = port.error().message;
    }
    refused += fmt::format("; {} port {}: {}", info.device, info.port, reason);
  }
  if (!refused.empty()) made->context_.log.info("verbs: not used" + refused);
  if (made->nics_.empty()) {
    return fail(ErrorCode::kUnavailable,
                "verbs: no RDMA port can be used" +
                    (refused.empty() ? ": there is none, or CLUSTAR_IB_HCA matches none" : refused));
  }
  return made;
}

void VerbsTransport::add(std::vector<Port> ports) {
  nics_.push_back(std::make_unique<Nic>(std::move(ports), control_, context_));
  properties_.push_back(describe(*nics_.back()));
}

Result<int> VerbsTransport::fuse(std::span<const int> devices) {
  std::vector<Port> ports;
  for (const int device : devices) {
    const auto part = nic(device);
    if (!part) return tl::unexpected(part.error());
    for (const Port& port : (*part)->ports()) {
      auto opened = Port::open(port.info, context_.settings);
      if (!opened) return tl::unexpected(opened.error());
      ports.push_back(std::move(*opened));
    }
  }
  if (ports.empty() || ports.size() > kMaxPorts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs: a device of {} ports; 1 to {} are allowed", ports.size(), kMaxPorts));
  }
  add(std::move(ports));
  return static_cast<int>(nics_.size()) - 1;
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
