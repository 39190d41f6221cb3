// The report of `clustar perf --suite lossy`: one HTML page that refers to nothing outside itself, from its JSON alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/lossy/report/gnuplot.h"

namespace clustar::bench::lossy_report {

struct Page {
  std::string html;
  int plots = 0;
  std::vector<std::string> problems;  // why there are fewer plots than there could be; the page says it, too
};

// Whether it is what the suite writes: an envelope (see bench/report) with results.scenarios.
bool can_draw(const nlohmann::json& document);

// Anything may be missing from the document. Takes some 50 ms per plot; gnuplot is not tried again once it was missing
// or was ended at its limit.
Page make_page(const nlohmann::json& document, const GnuplotOptions& gnuplot = {});

}  // namespace clustar::bench::lossy_report
