// ncclProfiler_v4_t .. v6_t: the tables a profiler plugin exports as data objects `ncclProfiler_vN`, and the event
// descriptors that NCCL hands it. Source of the layouts: NCCL v2.27.7-1 (v4), v2.28.9-1 (v5) and v2.30.7-1 (v6),
// src/include/plugin/profiler/. Strings in a descriptor live as long as the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_abi {

// Bits of the activation mask, and an event's type.
enum ProfilerEvent : std::uint64_t {
  kEventGroup = 1u << 0,
  kEventColl = 1u << 1,
  kEventP2p = 1u << 2,
  kEventProxyOp = 1u << 3,
  kEventProxyStep = 1u << 4,
  kEventProxyCtrl = 1u << 5,
  kEventKernelCh = 1u << 6,
  kEventNetPlugin = 1u << 7,
  kEventGroupApi = 1u << 8,
  kEventCollApi = 1u << 9,
  kEventP2pApi = 1u << 10,
  kEventKernelLaunch = 1u << 11,
  kEventCeColl = 1u << 12,
  kEventCeSync = 1u << 13,
  kEventCeBatch = 1u << 14,
};

// ncclProfilerCallback_t's `type`.
enum ProfilerCall : int { kProfilerStart = 0, kProfilerStop = 1, kProfilerUpdate = 2, kProfilerUpdateAndStop = 3 };

struct CollEventV4 {
  std::uint64_t seq_number;
  const char* func;
  const void* send_buffer;
  void* recv_buffer;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algo;
  const char* proto;
};
struct CollEventV5 {
  std::uint64_t seq_number;
  const char* func;
  const void* send_buffer;
  void* recv_buffer;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algo;
  const char* proto;
  void* parent_group;
};
struct P2pEventV4 {
  const char* func;
  void* buffer;
  const char* datatype;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};
struct P2pEventV5 {
  const char* func;
  void* buffer;
  const char* datatype;
  std::size_t count;
  int peer;
  std::uint8_t channels;
  void* parent_group;
};
struct GroupApiEvent {
  bool graph_captured;
  int group_depth;
};
struct CollApiEvent {
  const char* func;
  std::size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graph_captured;
};
struct P2pApiEvent {
  const char* func;
  std::size_t count;
  const char* datatype;
  void* stream;
  bool graph_captured;
};
struct ProxyOpEvent {
  std::int32_t pid;  // pid_t of the process whose collective it is: another one's under PXN
  std::uint8_t channel;
  int peer;
  int steps;  // network transfers: already divided by sliceSteps
  int chunk_size;
  int is_send;
};
struct ProxyStepEvent {
  int step;  // network transfer within the operation, from 0
};
struct KernelChEvent {
  std::uint8_t channel;
  std::uint64_t timer;
};
struct NetPluginEvent {
  std::int64_t id;
  void* data;
};
struct CeCollEvent {
  std::uint64_t seq_number;
  const char* func;
  const void* send_buffer;
  void* recv_buffer;
  std::size_t count;
  int root;
  const char* datatype;
  const char* sync_strategy;
  bool intra_batch_sync;
  std::uint32_t batch_size;
  std::uint32_t batches;
  std::uint32_t ce_seq_number;
  void* stream;
};

struct EventV4 {
  std::uint8_t type;  // the seven bytes behind it are padding and hold anything
  void* parent;
  int rank;
  union {
    CollEventV4 coll;
    P2pEventV4 p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChEvent kernel_ch;
    NetPluginEvent net_plugin;
  };
};
struct EventV5 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiEvent group_api;
    CollApiEvent coll_api;
    P2pApiEvent p2p_api;
    void* kernel_launch_stream;
    CollEventV5 coll;
    P2pEventV5 p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChEvent kernel_ch;
    NetPluginEvent net_plugin;
  };
};
struct EventV6 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiEvent group_api;
    CollApiEvent coll_api;
    P2pApiEvent p2p_api;
    void* kernel_launch_stream;
    CollEventV5 coll;
    P2pEventV5 p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChEvent kernel_ch;
    NetPluginEvent net_plugin;
    CeCollEvent ce_coll;
  };
};
static_assert(sizeof(EventV4) == 104 && offsetof(EventV4, parent) == 8 && offsetof(EventV4, coll) == 24);
static_assert(sizeof(EventV5) == 112 && offsetof(EventV5, parent) == 8 && offsetof(EventV5, coll) == 24);
static_assert(sizeof(EventV6) == 112 && offsetof(EventV6, coll) == 24 && offsetof(EventV6, ce_coll.stream) == 104);

union EventStateArgs {  // 8 bytes in every version
  std::size_t transferred;
  int appended_proxy_ops;
  void* net_plugin_data;
  std::uint64_t kernel_timer;
};
static_assert(sizeof(EventStateArgs) == 8);

struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* comm_name, std::uint64_t comm_hash, int nodes, int ranks, int rank,
              DebugLogger);
  int (*startEvent)(void* context, void** event, EventV4*);
  int (*stopEvent)(void* event);
  int (*recordEventState)(void* event, int state, EventStateArgs*);
  int (*finalize)(void* context);
};
struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
              DebugLogger);
  int (*startEvent)(void* context, void** event, EventV5*);
  int (*stopEvent)(void* event);
  int (*recordEventState)(void* event, int state, EventStateArgs*);
  int (*finalize)(void* context);
};
struct ProfilerV6 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
              DebugLogger);
  int (*startEvent)(void* context, void** event, EventV6*);
  int (*stopEvent)(void* event);
  int (*recordEventState)(void* event, int state, EventStateArgs*);
  int (*finalize)(void* context);
};
static_assert(sizeof(ProfilerV4) == 48 && sizeof(ProfilerV5) == 48 && sizeof(ProfilerV6) == 48);

}  // namespace clustar::nccl_abi
