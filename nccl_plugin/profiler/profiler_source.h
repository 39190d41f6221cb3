// What the process's profiler tables work with.
#pragma once

#include <memory>

#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/profiler/chain_profiler.h"
#include "transport/base/log.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// From the configuration of the net plugin in this process, or, when NCCL took another net plugin, from the
// environment; communicators share one while any of them is open.
struct ProfilerSource {
  LossPolicy policy;
  std::shared_ptr<ChainProfiler> chain;  // null: none
  Log log;
};
// Error: the configuration is wrong. A chained profiler that cannot be used is a warning only.
Result<std::shared_ptr<ProfilerSource>> profiler_source(nccl_abi::DebugLogger logger);

}  // namespace clustar::nccl_plugin
