#include "nccl_plugin/profiler/profiler_source.h"

#include <mutex>
#include <string>
#include <utility>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/plugin_state.h"
#include "nccl_plugin/settings/all_settings.h"
#include "nccl_plugin/settings/plugin_settings.h"
#include "transport/base/config.h"

namespace clustar::nccl_plugin {
namespace {

Log make_log(nccl_abi::DebugLogger logger) {
  if (logger == nullptr) return Log();
  return Log([logger](LogLevel level, const std::string& message) {
    const int nccl_level = level == LogLevel::kWarn ? nccl_abi::kLogWarn : nccl_abi::kLogInfo;
    logger(nccl_level, nccl_abi::kLogInit, "clustar", 0, "PROFILER/clustar: %s", message.c_str());
  });
}

Result<std::shared_ptr<ProfilerSource>> make_source(nccl_abi::DebugLogger logger) {
  auto source = std::make_shared<ProfilerSource>();
  source->log = make_log(logger);
  const auto plugin = current_plugin();
  // A configuration that the net plugin refused is refused here, too, in the same words.
  const auto config = plugin && plugin->transport() != nullptr ? Result<Config>(plugin->config()) : load_settings();
  if (!config) return tl::unexpected(config.error());
  auto policy = LossPolicy::create(config->get<LossSettings>());
  if (!policy) return tl::unexpected(policy.error());
  source->policy = std::move(*policy);
  const std::string chained = config->get<PluginSettings>().chain_profiler;
  if (chained.empty()) return source;
  if (auto chain = ChainProfiler::open(chained)) {
    source->chain = std::move(*chain);
    source->log.info("events go on to the profiler " + source->chain->name());
  } else {
    source->log.warn(chain.error().message + ". No second profiler gets events");
  }
  return source;
}

}  // namespace

Result<std::shared_ptr<ProfilerSource>> profiler_source(nccl_abi::DebugLogger logger) {
  static std::mutex mutex;
  static std::weak_ptr<ProfilerSource> shared;
  const std::lock_guard lock(mutex);
  if (auto source = shared.lock()) return source;
  auto source = make_source(logger);
  if (source) shared = *source;
  return source;
}

}  // namespace clustar::nccl_plugin
