// An opened RDMA port: what queue pairs are made on.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "transport/base/result.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/loop.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/path.h"
#include "transport/verbs/core/wire.h"
#include "transport/verbs/settings.h"

namespace clustar::transport::verbs {

struct Port {
  io::verbs::PortInfo info{};
  io::verbs::Device device;
  io::verbs::ProtectionDomain domain;
  int gid_index = -1;  // -1: none, InfiniBand without one
  io::verbs::Gid gid{};
  ibv_mtu mtu = IBV_MTU_1024;  // of what is sent: at most the port's

  // Error: it cannot be opened, or has no GID that can be used.
  static Result<Port> open(const io::verbs::PortInfo& info, const Settings& settings);

  bool ethernet() const { return info.link_layer == io::verbs::LinkLayer::kEthernet; }
  std::string name() const { return device.place(info.port, gid_index).to_string(); }
  PortContact contact() const;
  // To a peer's port. Error kInvalidUsage: it is one that this port cannot reach.
  Result<io::verbs::Path> path_to(const PortContact& peer) const;
  // To the port itself, `depth` requests at most. The port outlives it and stays where it is.
  Result<io::verbs::Loop> loop(const Settings& settings, std::uint32_t depth) const;
};

}  // namespace clustar::transport::verbs
