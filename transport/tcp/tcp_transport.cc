#include "transport/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <utility>

#include "transport/base/copies.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/listener.h"

namespace clustar::transport::tcp {
namespace {

DeviceProperties describe(const net::Interface& interface, std::size_t index) {
  DeviceProperties properties;
  properties.name = interface.name;
  properties.pci_path = interface.pci_path;
  properties.guid = index;
  properties.speed_mbps = interface.speed_mbps;
  properties.latency_us = 0;
  properties.max_channels = 65536;
  properties.max_recv_parts = kMaxRecvParts;
  properties.memory_kinds = gdr::kHostOnly;
  properties.gdr = "off: TCP moves host memory; NCCL keeps its buffers in pinned host memory, so no copy is added here";
  properties.global_registration = false;
  // The kernel's copy to user space promises no order within a line, and long messages arrive over several sockets.
  properties.ordered_lines = false;
  return properties;
}

}  // namespace

Result<std::unique_ptr<Transport>> TcpTransport::create(const TransportContext& context) {
  std::unique_ptr<TcpTransport> transport(new TcpTransport(context));
  const Settings& settings = transport->context_.settings;
  auto interfaces = net::find_interfaces(settings.interface_filter, settings.family);
  if (!interfaces) return tl::unexpected(interfaces.error());
  net::set_speed(*interfaces, settings.line_mbps);
  for (net::Interface& interface : *interfaces) {
    auto policy =
        transport->policies_->make({interface.name, interface.knows_speed() ? interface.bytes_per_second() : 0});
    transport->context_.settings.keep_order(policy->orders());
    transport->properties_.push_back(describe(interface, transport->nics_.size()));
    transport->nics_.push_back(std::make_unique<Nic>(std::move(interface), transport->context_, std::move(policy)));
  }
  return transport;
}

Result<Nic*> TcpTransport::nic(int device) {
  if (device < 0 || static_cast<std::size_t>(device) >= nics_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tcp: device {} does not exist; 0 to {} do", device, nics_.size() - 1));
  }
  return nics_[static_cast<std::size_t>(device)].get();
}

Result<std::unique_ptr<Listener>> TcpTransport::listen(int device, const ChannelOptions& options) {
  const auto chosen = nic(device);
  if (!chosen) return tl::unexpected(chosen.error());
  return TcpListener::open(**chosen, options);
}

Result<std::unique_ptr<PendingConnect>> TcpTransport::connect(int device, const Handle& handle,
                                                              const ChannelOptions& options) {
  const auto chosen = nic(device);
  if (!chosen) return tl::unexpected(chosen.error());
  return TcpPendingConnect::start(**chosen, handle, options);
}

Counters TcpTransport::counters() const {
  Counters counters{.transport = "tcp", .note = describe_copies()};
  for (const auto& nic : nics_) {
    DeviceCounters& device = counters.devices.emplace_back(DeviceCounters{.device = nic->interface().name});
    nic->traffic().fill(device);
    device.queued_bytes = nic->engine().queued_bytes();
    const Nic::Counters& count = nic->counters();
    device.own = {{"early_messages", "before their receive", count.early_messages.load()},
                  {"strangers_dropped", "strangers dropped", count.strangers.load()}};
  }
  return counters;
}

}  // namespace clustar::transport::tcp
