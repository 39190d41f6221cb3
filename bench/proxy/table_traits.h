// Which structures belong to which ABI version, and what NCCL's shims put where a version has nothing
// (NCCL 2.28.9 src/plugin/net/net_v6.cc .. net_v11.cc).
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "bench/proxy/net_plugin.h"
#include "nccl_plugin/abi/tables.h"

namespace clustar::bench::proxy {

inline constexpr std::size_t kMaxTransferV8 = std::size_t{1} << 30;  // MAX_NET_SIZE of the shims
inline constexpr std::size_t kMaxCollNetV8 = std::size_t{1} << 29;   // MAX_COLLNET_SIZE
inline constexpr std::size_t kMaxRegistrationV7 = (std::size_t{1} << 31) - 1;

template <int V>
struct Abi;
template <>
struct Abi<6> {
  using Table = nccl_abi::TableV6;
  using Properties = nccl_abi::PropertiesV6;
};
template <>
struct Abi<7> {
  using Table = nccl_abi::TableV7;
  using Properties = nccl_abi::PropertiesV7;
};
template <>
struct Abi<8> {
  using Table = nccl_abi::TableV8;
  using Properties = nccl_abi::PropertiesV8;
};
template <>
struct Abi<9> {
  using Table = nccl_abi::TableV9;
  using Properties = nccl_abi::PropertiesV9;
};
template <>
struct Abi<10> {
  using Table = nccl_abi::TableV10;
  using Properties = nccl_abi::PropertiesV9;
};
template <>
struct Abi<11> {
  using Table = nccl_abi::TableV11;
  using Properties = nccl_abi::PropertiesV11;
};
template <>
struct Abi<12> {
  using Table = nccl_abi::TableV12;
  using Properties = nccl_abi::PropertiesV12;
};

template <int V>
NetProperties convert_properties(int dev, const typename Abi<V>::Properties& in) {
  NetProperties out;
  out.fused = {dev};
  out.name = in.name != nullptr ? in.name : "";
  out.pci_path = in.pci_path != nullptr ? in.pci_path : "";
  out.guid = in.guid;
  out.ptr_support = in.ptr_support;
  out.speed_mbps = in.speed;
  out.port = in.port;
  out.latency_us = in.latency;
  out.max_comms = in.max_comms;
  out.max_recvs = in.max_recvs;
  out.max_p2p_bytes = kMaxTransferV8;
  out.max_coll_bytes = kMaxCollNetV8;
  if constexpr (V >= 7) {
    out.device_type = in.net_device_type;
    out.device_version = in.net_device_version;
  }
  if constexpr (V >= 8) out.reg_is_global = in.reg_is_global != 0;
  if constexpr (V >= 9) {
    out.force_flush = in.force_flush != 0;
    out.max_p2p_bytes = in.max_p2p_bytes;
    out.max_coll_bytes = in.max_coll_bytes;
    const int members = std::clamp(in.v_props.ndevs, 0, static_cast<int>(std::size(in.v_props.devs)));
    out.fused.assign(in.v_props.devs, in.v_props.devs + members);
  }
  if constexpr (V >= 12) {
    out.rail_id = in.rail_id;
    out.plane_id = in.plane_id;
  }
  return out;
}

}  // namespace clustar::bench::proxy
