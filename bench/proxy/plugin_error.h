// Errors of plugin calls, as text for a person.
#pragma once

#include <string_view>

#include "bench/proxy/net_plugin.h"
#include "transport/base/result.h"

namespace clustar::bench::proxy {

const char* result_name(int result);  // "ncclRemoteError"; "unknown ncclResult_t" when it is none

// "<what> returned ncclRemoteError (6); the plugin's last warning: ..." with the code that fits the result.
Error plugin_error(const NetPlugin& plugin, std::string_view what, int result);

}  // namespace clustar::bench::proxy
