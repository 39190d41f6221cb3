#include "nccl_plugin/tuner_source.h"

#include <utility>

#include "transport/base/config.h"

namespace clustar::nccl_plugin {

Result<std::shared_ptr<const TunerSource>> tuner_source(nccl_abi::DebugLogger) {
  const auto config = Config::load();
  if (!config) return tl::unexpected(config.error());
  auto policy = LossPolicy::create(*config);
  if (!policy) return tl::unexpected(policy.error());
  auto source = std::make_shared<TunerSource>();
  source->policy = std::move(*policy);
  source->steer = config->tuner == "on";
  return source;
}

}  // namespace clustar::nccl_plugin
