// A device's properties in the shape of each ABI version.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "nccl_plugin/abi/properties.h"
#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/memory.h"
#include "nccl_plugin/net/net.h"

namespace clustar::nccl_plugin {

// A plain device is the only one of itself.
template <class VDevice>
void fill_members(int device, const transport::DeviceProperties& from, VDevice* out) {
  out->devs[0] = device;
  out->ndevs = static_cast<int>(std::max<std::size_t>(1, std::min(from.fused.size(), std::size(out->devs))));
  std::copy_n(from.fused.begin(), std::min(from.fused.size(), std::size(out->devs)), out->devs);
}

template <class Properties>
void fill_properties(int device, const NetDevice& found, Properties* out) {
  const transport::DeviceProperties& from = found.properties;
  *out = Properties{};
  out->name = const_cast<char*>(found.name);
  out->pci_path = const_cast<char*>(found.pci_path);
  out->guid = from.guid;
  out->ptr_support = ptr_support(from.memory_kinds);
  out->reg_is_global = from.global_registration ? 1 : 0;
  out->speed = from.speed_mbps;
  out->port = from.port;
  out->latency = from.latency_us;
  out->max_comms = from.max_channels;
  out->max_recvs = from.max_recv_parts;
  out->net_device_type = nccl_abi::kDeviceTypeHost;
  out->net_device_version = nccl_abi::kDeviceVersionInvalid;
  if constexpr (requires { out->v_props; }) {
    out->force_flush = from.force_flush ? 1 : 0;
    fill_members(device, from, &out->v_props);
    out->max_p2p_bytes = nccl_abi::kMaxBytesV9;
    out->max_coll_bytes = nccl_abi::kMaxBytesV9;
  }
  if constexpr (requires { out->max_multi_request_size; }) out->max_multi_request_size = 1;
  if constexpr (requires { out->rail_id; }) {
    out->rail_id = from.rail_id;
    out->plane_id = from.plane_id;
  }
}

}  // namespace clustar::nccl_plugin
