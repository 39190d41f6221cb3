// The conformance tester's other half: NCCL's own host code, on an emulated device, over any net plugin. The cases and
// their verdicts are tests/nccl_host's, whose program is started here and read line by line.
#pragma once

#include <functional>
#include <string>

#include "bench/conform/conform.h"
#include "transport/base/result.h"

namespace clustar::bench::conform {

// As Options::env.plugin: NCCL's own sockets instead of a plugin.
inline constexpr const char* kSocket = "socket";

struct NcclOptions {
  std::string plugin;  // a path, a name as NCCL_NET_PLUGIN has them, or kSocket
  std::string source;  // NCCL's: a folder or a tarball; empty: CLUSTAR_NCCL_SOURCE, then where scripts/nccl-host looks
  std::string only;
  int timeout = 30;      // seconds for a case, without the two below
  int freeze = 2;        // seconds for which a rank is stopped
  int death_bound = 10;  // seconds within which a rank's death must be an error
  bool emulated_gpu = false;
};

// Builds NCCL's library if it is not there (progress on standard error, minutes), runs the cases. `interrupted` is
// asked ten times a second: a signal's number ends all that runs, and the report has what came before it. Errors:
// kInvalidArgument no net plugin, no such case, no source of NCCL here; kUnavailable no clone of the project to build
// from; kSystem the library cannot be built or the cases cannot be run. Each says what to do.
Result<Report> run_over_nccl(const NcclOptions& options, const OnStart& on_start, const OnEnd& on_end,
                             const std::function<int()>& interrupted);

// Name, rule and source of each case. Errors as above, kUnavailable and kInvalidArgument.
Result<std::string> list_nccl_cases(const std::string& only);

}  // namespace clustar::bench::conform
