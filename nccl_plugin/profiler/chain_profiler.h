// A second profiler (CLUSTAR_CHAIN_PROFILER): NCCL loads only one, which ours displaces; users keep theirs this way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nccl_plugin/abi/profiler.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// Knows the library and its tables; whose event is whose is Profiler's business. Any thread. `version` is that of the
// table by which NCCL calls us, 4 to 6: the library's newest table that is not newer takes the call, so that only what
// an older table lacks is left out. Returns what the library returns, 0 = success; success without a table.
class ChainProfiler {
 public:
  // Opens `path` as NCCL does: a name without '/' also as libnccl-profiler-<name>.so.
  // Errors: kUnavailable: cannot be opened (with the loader's reason), exports none of v4, v5, v6; kInvalidUsage: it is
  // this plugin itself.
  static Result<std::unique_ptr<ChainProfiler>> open(const std::string& path);
  ~ChainProfiler();
  ChainProfiler(const ChainProfiler&) = delete;
  ChainProfiler& operator=(const ChainProfiler&) = delete;

  // Version of the table that takes calls of `version`; 0: the library is too new for this NCCL.
  int table_for(int version) const;
  // Name that the library gives itself.
  std::string name() const;

  // The library may keep `mask` and change it later: it lives as long as the context.
  int init(int version, void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks,
           int rank, nccl_abi::DebugLogger logger) const;
  // `event` is a descriptor of `version` (EventV4, EventV5, EventV6) whose parents are the library's own. *handle
  // becomes null when the older table has no such event.
  int start(int version, void* context, void** handle, const void* event) const;
  int stop(int version, void* handle) const;
  int record(int version, void* handle, int state, const void* args) const;
  int finalize(int version, void* context) const;

 private:
  ChainProfiler() = default;

  void* library_ = nullptr;
  const nccl_abi::ProfilerV4* v4_ = nullptr;
  const nccl_abi::ProfilerV5* v5_ = nullptr;
  const nccl_abi::ProfilerV6* v6_ = nullptr;
};

}  // namespace clustar::nccl_plugin
