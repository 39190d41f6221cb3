#include "transport/verbs/port.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::transport::verbs {
namespace {

// The largest that a port with `active` bytes and the setting (0 = any) allow.
ibv_mtu mtu_of(int active, int setting) {
  const int most = setting == 0 ? active : std::min(active, setting);
  ibv_mtu mtu = IBV_MTU_256;
  for (const auto& [bytes, code] : {std::pair{512, IBV_MTU_512}, std::pair{1024, IBV_MTU_1024},
                                    std::pair{2048, IBV_MTU_2048}, std::pair{4096, IBV_MTU_4096}}) {
    if (most >= bytes) mtu = code;
  }
  return mtu;
}

}  // namespace

Result<Port> Port::open(const UsablePort& usable, const Settings& settings) {
  auto device = io::verbs::Device::open(usable.info.device);
  if (!device) return tl::unexpected(device.error());
  auto domain = io::verbs::ProtectionDomain::make(*device);
  if (!domain) return tl::unexpected(domain.error());
  return Port{.info = usable.info,
              .device = std::move(*device),
              .domain = std::move(*domain),
              .gid_index = static_cast<int>(usable.gid.index),
              .gid = usable.gid.gid,
              .mtu = mtu_of(usable.info.active_mtu, settings.mtu)};
}

PortContact Port::contact() const {
  return {.gid = gid.bytes, .lid = info.lid, .mtu = static_cast<std::uint8_t>(mtu), .ethernet = ethernet()};
}

Result<io::verbs::Path> Port::path_to(const PortContact& peer) const {
  if (peer.ethernet != ethernet()) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("verbs: {} is {} and the peer's port is not; choose ports of one network by CLUSTAR_IB_HCA "
                            "on all ranks",
                            name(), ethernet() ? "Ethernet" : "InfiniBand"));
  }
  io::verbs::Path path{.peer = {peer.gid}, .port = static_cast<std::uint8_t>(info.port), .gid_index = gid_index};
  path.lid = peer.lid;
  // Within one subnet of InfiniBand its own addresses do, and every packet is 40 bytes shorter.
  const bool same_subnet = std::equal(gid.bytes.begin(), gid.bytes.begin() + 8, peer.gid.begin());
  if (!ethernet() && same_subnet) path.gid_index = -1;
  return path;
}

}  // namespace clustar::transport::verbs
