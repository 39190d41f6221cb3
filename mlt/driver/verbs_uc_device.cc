#include "mlt/driver/verbs_uc_device.h"

#include <algorithm>
#include <utility>

#include "mlt/driver/verbs_device.h"
#include "transport/io/verbs/uc/uc_io.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::mlt::driver {
namespace {

namespace verbs = transport::io::verbs;

constexpr std::uint8_t kPaths = 8;
static_assert(kPaths <= kMaxPorts);

}  // namespace

Result<Device> open_verbs_uc_device(const Config& config, const net::Interface& interface, const net::Address& local) {
  const auto place = rdma_port_of(config, interface, local);
  if (!place) return tl::unexpected(place.error());
  const Reach reach = reach_of(config, *place);
  auto below = verbs::UdIo::open({.device = place->device,
                                  .port = place->port,
                                  .gid = {.index = place->gid_index},
                                  .paths = kPaths,
                                  .access = verbs::uc::UcIo::kAccess,
                                  .device_memory = reach.kinds != gdr::kHostOnly,
                                  .emulate = config.gdr_emulate});
  if (!below) return tl::unexpected(below.error());
  verbs::UdIo* ud = below->get();
  auto opened = verbs::uc::UcIo::open(std::move(*below), ud->device(), ud->domain(), ud->gid(), {.port = place->port});
  if (!opened) return tl::unexpected(opened.error());
  verbs::uc::UcIo* uc = opened->get();
  Device device;
  device.reach = reach_with(reach, *ud);
  device.datapath = Datapath::kVerbsUc;
  device.ports.count = kPaths;
  device.ports.key = ud->local().q_key;
  std::copy_n(ud->local().queue_pairs.begin(), kPaths, device.ports.port.begin());
  device.add_peer = [ud, uc](const net::Address& host, const Ports& ports) {
    const verbs::Gid gid = gid_of(host);
    auto added = ud->add_peer({gid, ports.key, {ports.all().begin(), ports.all().end()}});
    if (added) uc->add_peer(*added, gid);
    return added;
  };
  device.remove_peer = [ud, uc](transport::io::PeerId peer) {
    uc->remove_peer(peer);
    static_cast<void>(ud->remove_peer(peer));
  };
  device.describe = [ud, uc] { return uc->describe() + "; " + ud->describe(); };
  device.readable_fds = ud->readable_fds();
  device.readable_fds.push_back(uc->readable_fd());
  // Both, in any case: what the first one has may be nothing for us.
  device.before_sleep = [ud, uc] {
    const Duration datagrams = ud->arm().value_or(Duration(0));
    const Duration here = uc->arm().value_or(Duration(0));
    return std::min(datagrams, here);
  };
  device.io = std::move(*opened);
  return device;
}

}  // namespace clustar::mlt::driver
