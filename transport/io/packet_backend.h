// What lists and opens the devices of one kind of PacketIo, so that nobody above knows which kinds there are.
// CLUSTAR_IO names it; it is part of the plugin, or of a module (transport/io/packet_ios.h says which).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::io {

// Of a device that may not be open yet.
struct DeviceInfo {
  std::string name{};       // for people
  std::string pci_path{};   // in sysfs; empty = not a PCI device
  int speed_mbps = 0;       // for NCCL, which wants a number: 10,000 where nobody tells
  net::Endpoint control{};  // where control connections to it go, port 0: its own address, or CLUSTAR_CONTROL_IFNAME's
  Reach reach{};
};

// Thread rule: one thread at a time. Lifetime rule: outlives what it opens.
class PacketBackend {
 public:
  virtual ~PacketBackend() = default;
  // Of what the packets are on the wire, as CLUSTAR_IO has the first kind that has such: at most kMostIoName
  // characters. Both ends of a connection must have the same.
  virtual const char* name() const = 0;
  // In an order that does not change while it lives. Error: none can be used, with the reasons.
  virtual Result<std::vector<DeviceInfo>> devices() = 0;
  // `device`: an index into them. Each call opens it again.
  virtual Result<std::unique_ptr<PacketIo>> open(std::size_t device) = 0;
};

// How a module offers its backends (ModuleEntry::find). `io`: the name of one of them. Errors: none of that name, or
// why this machine cannot have it. What it makes ends before the module is closed.
inline constexpr const char* kOpenPacketBackend = "open_packet_backend";
using OpenPacketBackend = Result<std::unique_ptr<PacketBackend>> (*)(std::string_view io, const Config& config,
                                                                     const Log& log);

// How a module offers to wrap any backend (libclustar-faults.so). Error: settings of its own that make no sense.
inline constexpr const char* kWrapPacketBackend = "wrap_packet_backend";
using WrapPacketBackend = Result<std::unique_ptr<PacketBackend>> (*)(std::unique_ptr<PacketBackend> backend,
                                                                     const Config& config);

}  // namespace clustar::transport::io
