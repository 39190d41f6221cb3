// What the driver needs of a NIC: packets, and the addresses of its peers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gdr/memory.h"
#include "mlt/driver/handshake.h"
#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/io/packet_io.h"
#include "transport/net/interfaces.h"

namespace clustar::mlt::driver {

namespace io = transport::io;
namespace net = transport::net;

// Which memory a NIC reaches.
struct Reach {
  std::uint32_t kinds = gdr::kHostOnly;  // a set of gdr::bit(kind); others than host need PacketIo::writer()
  std::string why;                       // DeviceProperties::gdr
  bool force_flush = false;              // DeviceProperties::force_flush
};
// Of a device that may not be open yet.
using FindReach = std::function<Reach(const net::Interface& interface, const net::Address& local)>;

struct Device {
  std::unique_ptr<io::PacketIo> io;
  Reach reach;
  Datapath datapath = Datapath::kUdp;
  Ports ports;  // of this side, one per path
  // Called as PacketIo's data path is: by one thread at a time.
  std::function<Result<io::PeerId>(const net::Address& host, const Ports&)> add_peer;
  std::function<void(io::PeerId)> remove_peer;
  // After capabilities().max_packet became smaller: packets of the former length pass from now on. False: they pass
  // already, or never will. Empty: never.
  std::function<bool()> allow_fragments;
  std::function<std::string()> describe;  // what it did, for people
  // One of them is readable when something can be received: lets a thread sleep without holding the device. None: it
  // must look now and then.
  std::vector<int> readable_fds;
  // To be called, as the data path is, before a thread sleeps on them: how long it may at most, because of what they do
  // not tell of. 0: there is something already. Empty: they tell of everything without.
  std::function<Duration()> before_sleep;
};

// Opens the device that has this address.
using OpenDevice = std::function<Result<Device>(const net::Interface& interface, const net::Address& local)>;

}  // namespace clustar::mlt::driver
