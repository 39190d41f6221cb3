// One workload under several policies.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/coflow/render.h"
#include "bench/coflow/source.h"
#include "coflow/registry.h"

namespace clustar::bench::coflow {

struct CompareOptions {
  std::vector<std::string> policies;  // specs; "all"; empty: ours
  std::string rules = "exact";        // exact, coflowsim, coflowsim-stock
  double port_gbps = 1;               // 1e9 bit/s; CoflowSim's rules have their own
  std::optional<Duration> refill;     // Rules::refill; otherwise what a port takes for 12.5 MB: 100 ms at 1 Gbit/s
  bool per_coflow = false;            // with Summary::each
};

// `line` overwrites the one before; `done` ends it.
using Say = std::function<void(const std::string& line, bool done)>;

// Errors: kInvalidArgument for what the caller asked for, or a bad trace.
Result<Comparison> compare(const Source& source, const CompareOptions& options, const Say& say);

}  // namespace clustar::bench::coflow
