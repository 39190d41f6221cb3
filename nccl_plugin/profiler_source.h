// What the process's profiler tables work with.
#pragma once

#include <atomic>
#include <memory>

#include "nccl_plugin/chain_profiler.h"
#include "nccl_plugin/comm_registry.h"
#include "nccl_plugin/policy.h"
#include "nccl_plugin/profiler.h"
#include "transport/base/log.h"

namespace clustar::nccl_plugin {

// From the process's configuration; communicators share one while any of them is open.
struct ProfilerSource {
  LossPolicy policy;
  std::shared_ptr<ChainProfiler> chain;  // null: none
  Log log;
};
// Error: the configuration is wrong. A chained profiler that cannot be used is a warning only.
Result<std::shared_ptr<ProfilerSource>> profiler_source(nccl_abi::DebugLogger logger);

// These live until the plugin is unloaded and have no destructors: stopEvent comes without a context, and from threads
// that outlive main.
Profiler& process_profiler();
CommRegistry& process_registry();
std::atomic<bool>& critical_phase();

}  // namespace clustar::nccl_plugin
