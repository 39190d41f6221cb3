// What the tuner decides by, the same for all communicators of the process.
#pragma once

#include <memory>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/comm_registry.h"
#include "nccl_plugin/loss/policy.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

struct TunerSource {
  LossPolicy policy;
  const CommRegistry* registry = nullptr;  // outlives the source; null: names and classes are not known
  bool ordered_lines = false;              // of the transport in use
  bool steer = true;                       // CLUSTAR_TUNER, where the transport may lose
  bool by_planner = true;                  // CLUSTAR_TUNER
};

// Error: the configuration is wrong, as a sentence for the user. `logger` may be null.
Result<std::shared_ptr<const TunerSource>> tuner_source(nccl_abi::DebugLogger logger);

}  // namespace clustar::nccl_plugin
