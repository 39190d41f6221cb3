#include "nccl_plugin/tuner/tuner_source.h"

#include "nccl_plugin/net/plugin_state.h"
#include "nccl_plugin/process.h"
#include "nccl_plugin/settings/plugin_settings.h"

namespace clustar::nccl_plugin {

Result<std::shared_ptr<const TunerSource>> tuner_source(nccl_abi::DebugLogger /*logger*/) {
  const auto plugin = current_plugin();
  auto source = std::make_shared<TunerSource>();
  if (!plugin || plugin->transport() == nullptr) {
    // Another net plugin carries the traffic, or none will: NCCL's choice is not ours to change.
    source->ordered_lines = true;
    source->steer = false;
    source->by_planner = false;
    return source;
  }
  source->policy = plugin->policy();
  source->registry = &process_registry();
  source->ordered_lines = plugin->ordered_lines();
  source->by_planner = plugin->config().get<PluginSettings>().tuner == "on";
  source->steer = source->by_planner && plugin->may_lose();
  return source;
}

}  // namespace clustar::nccl_plugin
