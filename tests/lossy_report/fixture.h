// A document as `clustar perf --suite lossy --json` writes it, with figures that are made up.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace clustar::bench::lossy_report {

// All scenarios.
nlohmann::json made_up_document();
// Distribution and tail, p99, goodput and CPU of five scenarios; no tail but shares where two jobs share a port.
inline constexpr int kPlotsInIt = 6 * 5;

}  // namespace clustar::bench::lossy_report
