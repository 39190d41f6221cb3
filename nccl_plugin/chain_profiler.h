// A second profiler (CLUSTAR_CHAIN_PROFILER): NCCL loads only one, which ours displaces; users keep theirs this way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nccl_plugin/abi/profiler.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// Knows the library and its table; whose event is whose is Profiler's business. Any thread.
class ChainProfiler {
 public:
  // Opens `path` as NCCL does (a name without '/' also as libnccl-profiler-<name>.so) and takes its newest table of v6,
  // v5, v4 that NCCL's `version` can be translated to: descriptors are handed on as they are when the versions are the
  // same; a v5 or v6 event reaches a v4 profiler without what v4 lacks, events unknown to the older one do not.
  // Errors: cannot be opened (the loader's reason), exports none of these, is this plugin itself.
  static Result<std::unique_ptr<ChainProfiler>> open(const std::string& path);
  ~ChainProfiler();

  int version() const;
  int init(int version, void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks,
           int rank, nccl_abi::DebugLogger logger);
  // `event` is a descriptor of `version` (EventV4, EventV5, EventV6) whose parents are the chained profiler's own.
  int start(void* context, void** handle, int version, const void* event);
  int stop(void* handle);
  int record(void* handle, int state, const void* args);
  int finalize(void* context);

 private:
  struct Impl;
  explicit ChainProfiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace clustar::nccl_plugin
