// NCCL's event descriptors of all versions in one shape.
#pragma once

#include <cstdint>

#include "nccl_plugin/abi/profiler.h"

namespace clustar::nccl_plugin {

// Strings and `original` live as long as the call.
struct ProfilerEvent {
  std::uint64_t type = 0;  // one bit of nccl_abi::ProfilerEvent
  void* parent = nullptr;
  // Coll, P2p
  std::uint64_t number = 0;
  const char* func = nullptr;
  const char* datatype = nullptr;
  const char* algo = nullptr;
  const char* proto = nullptr;
  std::uint64_t count = 0;
  int peer = -1;              // P2p
  std::uint8_t channels = 0;  // P2p
  // CollApi, P2pApi
  bool graph_captured = false;
  // ProxyOp
  std::int32_t pid = 0;
  std::uint8_t channel = 0;
  int steps = 0;
  bool is_send = false;
  // ProxyStep
  int step = 0;
  // NetPlugin
  std::int64_t plugin_id = 0;
  void* data = nullptr;

  int version = 0;                 // of `original`: 4, 5 or 6
  const void* original = nullptr;  // for the chained profiler; may be null, then it is not forwarded
};

ProfilerEvent read_event(const nccl_abi::EventV4& event);
ProfilerEvent read_event(const nccl_abi::EventV5& event);
ProfilerEvent read_event(const nccl_abi::EventV6& event);

}  // namespace clustar::nccl_plugin
