// Which collective a message belongs to: NCCL's profiler events, kept just long enough to answer.
//
//   isend(phandle) -> NCCL's callback -> startEvent(NetPlugin, parent ProxyStep) -> ProxyOp -> Coll or P2p
//
// NCCL calls startEvent synchronously from our own isend (v2.27.7 src/plugin/profiler.cc ncclProfilerCallback), so the
// answer is there before a byte moves. Coll events stop as soon as the work is queued, long before its transfers: an
// object lives until it and all its children stopped. Handles are not pointers but index, generation and a mark of this
// process: NCCL may hand back any handle at any time (of another process under PXN, of a stopped CollApi event whose
// graph is replayed), and a stale one is recognised. Nothing here locks, allocates or calls CUDA after construction:
// Coll and P2p events come from the application's thread or a CUDA host callback, the rest from the progress thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "nccl_plugin/chain_profiler.h"
#include "nccl_plugin/comm_registry.h"
#include "nccl_plugin/policy.h"

namespace clustar::nccl_plugin {

// NCCL's descriptors of all versions in one shape; strings live as long as the call.
struct ProfilerEvent {
  std::uint64_t type = 0;  // one bit of nccl_abi::ProfilerEvent
  void* parent = nullptr;
  int rank = 0;
  // Coll, P2p
  std::uint64_t number = 0;
  const char* func = nullptr;
  const char* datatype = nullptr;
  const char* algo = nullptr;
  const char* proto = nullptr;
  std::uint64_t count = 0;
  int peer = -1;
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
  const void* original = nullptr;  // for the chained profiler
};

// The net plugin's id in NetPlugin events, as NCCL's own are (type << 16 | version).
inline constexpr std::int64_t kNetEventId = (std::int64_t{0x636c} << 16) | 1;

// What isend hands through NCCL's callback as extension data, and startEvent fills.
struct MessageQuery {
  static constexpr std::uint64_t kMagic = 0x636c75737461721ull;
  std::uint64_t magic = kMagic;
  MessageFacts facts;  // but for `size`
  transport::MessageIdentity identity;
};

// One communicator as the profiler sees it.
class ProfilerContext;

class Profiler {
 public:
  struct Options {
    std::uint32_t collectives = 1024;  // Coll and P2p events alive at a time
    std::uint32_t operations = 4096;   // ProxyOp events
    std::uint32_t others = 4096;       // events that only the chained profiler wants
  };
  struct Counters {
    std::uint64_t started = 0;    // events that got an object
    std::uint64_t exhausted = 0;  // events that got none: their messages are unidentified
    std::uint64_t foreign = 0;    // of other processes
    std::uint64_t stale = 0;      // handles that name nothing any more
    std::uint64_t alive = 0;
  };
  // The references outlive the profiler. `critical` is read when a collective starts.
  Profiler(const Options& options, CommRegistry& registry, const std::atomic<bool>& critical);
  ~Profiler();

  // `policy` is that of the process's configuration and outlives the context. `mask` receives what NCCL shall report.
  // `chain` may be null; its context is made and ended with ours.
  std::unique_ptr<ProfilerContext> open(const CommFacts& comm, const LossPolicy& policy, ChainProfiler* chain,
                                        void* chain_context, int chain_mask, int* mask);
  void close(std::unique_ptr<ProfilerContext> context);

  // *handle receives null when the event is not kept; its children are unidentified then. Any thread.
  void start(ProfilerContext& context, void** handle, const ProfilerEvent& event);
  void stop(void* handle);
  void record(void* handle, int state, const void* args);

  Counters counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace clustar::nccl_plugin
