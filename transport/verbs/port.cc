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

Result<Port> Port::open(const io::verbs::PortInfo& info, const Settings& settings) {
  auto device = io::verbs::Device::open(info.device);
  if (!device) return tl::unexpected(device.error());
  auto domain = io::verbs::ProtectionDomain::make(*device);
  if (!domain) return tl::unexpected(domain.error());
  const auto table = device->gids(info.port);
  if (!table) return tl::unexpected(table.error());
  const bool ethernet = info.link_layer == io::verbs::LinkLayer::kEthernet;
  // On InfiniBand the index that users set for RoCE means nothing.
  const io::verbs::GidChoice choice = io::verbs::choose_gid(*table, ethernet ? settings.gid : io::verbs::GidWish{});
  if (!choice.chosen && ethernet) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("verbs: {} port {}: {}", info.device, info.port, choice.summary()));
  }
  return Port{.info = info,
              .device = std::move(*device),
              .domain = std::move(*domain),
              .gid_index = choice.chosen ? static_cast<int>(choice.chosen->index) : -1,
              .gid = choice.chosen ? choice.chosen->gid : io::verbs::Gid{},
              .mtu = mtu_of(info.active_mtu, settings.mtu)};
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

Result<io::verbs::Loop> Port::loop(const Settings& settings, std::uint32_t depth) const {
  const auto path = path_to(contact());
  if (!path) return tl::unexpected(path.error());
  return io::verbs::Loop::make(
      device, domain,
      {.path = *path, .pkey_index = settings.pkey_index, .mtu = mtu, .retry = settings.retry, .depth = depth});
}

}  // namespace clustar::transport::verbs
