#include "transport/io/verbs/device_list.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "transport/io/verbs/device.h"

namespace clustar::transport::io::verbs {
namespace {

const char* state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP: return "nop";
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "init";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "active deferred";
  }
  return "?";
}

int mtu_bytes(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

void describe(const ibv_port_attr& attributes, PortInfo& info) {
  info.active = attributes.state == IBV_PORT_ACTIVE;
  info.state = state_name(attributes.state);
  if (attributes.link_layer == IBV_LINK_LAYER_INFINIBAND) info.link_layer = LinkLayer::kInfiniBand;
  if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) info.link_layer = LinkLayer::kEthernet;
  info.active_mtu = mtu_bytes(attributes.active_mtu);
  info.max_mtu = mtu_bytes(attributes.max_mtu);
  info.speed_mbps = speed_mbps(attributes.active_speed, attributes.active_width);
  info.lid = attributes.lid;
  if (!info.active) {
    info.problem = "port is " + info.state + ": cable, switch port, `ip link set up` of its network interface" +
                   (info.link_layer == LinkLayer::kInfiniBand ? ", subnet manager" : "");
  }
}

}  // namespace

int speed_mbps(std::uint8_t active_speed, std::uint8_t active_width) {
  // One bit each, from SDR and DDR on; what a lane carries, after coding.
  constexpr int kLane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
  constexpr int kLanes[] = {1, 4, 8, 12, 2};
  const auto bit = [](std::uint8_t code) { return code == 0 ? -1 : __builtin_ctz(code); };
  const int speed = bit(active_speed);
  const int width = bit(active_width);
  if (speed < 0 || width < 0 || width >= static_cast<int>(std::size(kLanes))) return 0;
  return kLane[speed] * kLanes[width];
}

std::string device_pci_path(const std::string& sysfs, const std::string& device) {
  const std::string link = sysfs + "/class/infiniband/" + device + "/device";
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(link.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : std::string();
}

int device_numa_node(const std::string& sysfs, const std::string& device) {
  std::ifstream in(sysfs + "/class/infiniband/" + device + "/device/numa_node");
  int node = -1;
  return in >> node ? node : -1;
}

Result<std::vector<PortInfo>> list_ports(const HcaFilter& filter, const std::string& sysfs) {
  const auto list = DeviceArray::get();
  // A kernel without RDMA has no devices, which is no failure.
  if (!list && list.error().code == ErrorCode::kUnavailable) return std::vector<PortInfo>{};
  if (!list) return tl::unexpected(list.error());
  std::vector<PortInfo> ports;
  for (ibv_device* const listed : list->devices()) {
    PortInfo info{.device = ibv_get_device_name(listed)};
    info.node_guid = be64toh(ibv_get_device_guid(listed));
    info.pci_path = device_pci_path(sysfs, info.device);
    info.numa_node = device_numa_node(sysfs, info.device);
    const auto device = Device::open(info.device);
    if (!device) {
      info.problem = device.error().message;
      if (filter.matches(info.device, 0)) ports.push_back(info);
      continue;
    }
    for (int port = 1; port <= device->limits().phys_port_cnt; ++port) {
      if (!filter.matches(info.device, port)) continue;
      PortInfo known = info;
      known.port = port;
      if (const auto attributes = device->port(port); attributes) {
        describe(*attributes, known);
      } else {
        known.problem = attributes.error().message;
      }
      ports.push_back(known);
    }
  }
  return ports;
}

}  // namespace clustar::transport::io::verbs
