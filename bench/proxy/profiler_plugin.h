// Loads the NCCL profiler of a library (ncclProfiler_v4 .. v6) and gives its calls one shape, that of v6, as NCCL's own
// shims do (NCCL 2.28.9 src/plugin/profiler/profiler_v4.cc, profiler_v5.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/proxy/plugin_library.h"
#include "nccl_plugin/abi/profiler.h"
#include "transport/base/result.h"

namespace clustar::bench::proxy {

// Which profilers and tuners the NCCL has that loads a net plugin of this version: 12 -> 6 (NCCL 2.30), 11 -> 5 (2.28),
// 10 -> 4 (2.27), 0 = none below.
int paired_version(int net_version);

// ncclProfilerEventState_t, of v4 and later.
enum ProfilerState : int {
  kStateSendGpuWait = 8,
  kStateSendWait = 9,
  kStateRecvWait = 10,
  kStateRecvFlushWait = 11,
  kStateRecvGpuWait = 12,
  kStateProxyOpInProgress = 19,
  kStateSendPeerWait = 20,
  kStateNetPluginUpdate = 21,
  kStateGroupStartApiStop = 23,
  kStateGroupEndApiStart = 24,
};

// What a profiler hears of a communicator.
struct ProfiledComm {
  std::uint64_t comm_id = 0;
  std::string name;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
};

// Any thread. Calls return the plugin's ncclResult_t unchanged; NCCL ignores it, but for init's.
class ProfilerPlugin {
 public:
  // The newest table of `path` that is not newer than `newest` (4 to 6). Null: it exports none.
  // Errors: what open_library() says, a `newest` that does not exist.
  static Result<std::unique_ptr<ProfilerPlugin>> open(const std::string& path, int newest = 6);

  virtual ~ProfilerPlugin() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;  // "" when the table's name is NULL
  // The activation mask, which the plugin may change at any time. One for all communicators, as NCCL's.
  int mask() const { return __atomic_load_n(mask_, __ATOMIC_RELAXED); }

  virtual int init(const ProfiledComm& comm, nccl_abi::DebugLogger logger, void** context) = 0;
  // *handle is left as it is by a plugin that does not keep the event, and for events that its version does not know.
  virtual int start(void* context, void** handle, const nccl_abi::EventV6& event) = 0;
  virtual int stop(void* handle) = 0;
  // `args` null: the state has none.
  virtual int record(void* handle, int state, nccl_abi::EventStateArgs* args) = 0;
  virtual int finalize(void* context) = 0;

 protected:
  ProfilerPlugin(Library library, const void* table);

  Library library_;
  int* mask_;  // outlives the library: a plugin may keep the pointer
};

}  // namespace clustar::bench::proxy
