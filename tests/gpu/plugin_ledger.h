// What our plugin says that this process lost, asked through its C API as a training program would.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace clustar::nccl_check {

// {totals: {...}, reasons: {name: messages}, collectives: [...]}, the collectives oldest number first, each with what
// its missing ranges add up to; bytes are those of receives (nccl_plugin/clustar.h). `path`: under which the plugin was
// loaded; it is not loaded again. Throws std::runtime_error where it is not in the process or has no clustarApi_v1.
nlohmann::json plugin_ledger(const std::string& path);

// The plugin as the environment gives it to NCCL; where that is the logging shim, the one that it wraps.
std::string plugin_path();

}  // namespace clustar::nccl_check
