// ncclNetProperties_v6_t .. v12_t. Every size and offset is asserted: a wrong one would be read by NCCL as garbage.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::nccl_abi {

struct PropertiesV6 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int ptr_support;
  int speed;  // Mbit/s
  int port;
  float latency;  // microseconds
  int max_comms;
  int max_recvs;
};
static_assert(sizeof(PropertiesV6) == 48);

struct PropertiesV7 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int ptr_support;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(PropertiesV7) == 56);

struct PropertiesV8 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(PropertiesV8) == 64);
static_assert(offsetof(PropertiesV8, reg_is_global) == 28);
static_assert(offsetof(PropertiesV8, latency) == 40);
static_assert(offsetof(PropertiesV8, net_device_version) == 56);

struct VDeviceV9 {
  int ndevs;
  int devs[4];
};

struct PropertiesV9 {  // also v10
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VDeviceV9 v_props;
  std::size_t max_p2p_bytes;
  std::size_t max_coll_bytes;
};
static_assert(sizeof(PropertiesV9) == 104);
static_assert(offsetof(PropertiesV9, force_flush) == 32);
static_assert(offsetof(PropertiesV9, v_props) == 64);
static_assert(offsetof(PropertiesV9, max_p2p_bytes) == 88);

struct PropertiesV11 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VDeviceV9 v_props;
  std::size_t max_p2p_bytes;
  std::size_t max_coll_bytes;
  int max_multi_request_size;
};
static_assert(sizeof(PropertiesV11) == 112);
static_assert(offsetof(PropertiesV11, max_multi_request_size) == 104);

struct VDeviceV12 {
  int ndevs;
  int devs[8];
};

struct PropertiesV12 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VDeviceV12 v_props;
  std::size_t max_p2p_bytes;
  std::size_t max_coll_bytes;
  int max_multi_request_size;
  std::int16_t rail_id;   // -1 = undefined
  std::int16_t plane_id;  // -1 = undefined
};
static_assert(sizeof(PropertiesV12) == 128);
static_assert(offsetof(PropertiesV12, max_p2p_bytes) == 104);
static_assert(offsetof(PropertiesV12, max_multi_request_size) == 120);
static_assert(offsetof(PropertiesV12, rail_id) == 124);
static_assert(offsetof(PropertiesV12, plane_id) == 126);

}  // namespace clustar::nccl_abi
